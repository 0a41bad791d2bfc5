// Charts of values over virtual time.

const CHARTS = [
  ["waits", "Waits over time", "The number of waits for each lock, by the interval in which they began."],
  ["vmstat", "Vmstat work over time", "How many CPUs ran their vmstat work in each interval, and how many of them the shepherd had kicked."],
  ["pages", "Page lists over time", "The pages on the lists of all CPUs, and the pages that have been taken from the zones: on lists or in use."],
  ["moves", "Pages that move between lists and zones", "The pages that CPUs took from a zone or returned to it in each interval, by the function that moved them."],
  ["rss", "Error of the resident-page counter", "How far the cheap sum was off when it was read: the largest error in each interval."],
  ["resident", "Resident pages", "The true number of pages of the program."],
  ["reclaim", "Reclaimed pages over time", "The pages that reclaim freed in each interval."],
];

function lines(parent, report) {
  for (const [chart, title, about] of CHARTS) lineChart(parent, report, chart, title, about);
}

function lineChart(parent, report, chart, title, about) {
  const all = report.courses.flatMap((course) => course.lines.filter((line) => line.chart === chart));
  const names = [...new Set(all.map((line) => line.name))];
  if (!all.some((line) => line.values.some((value) => value))) return;
  const unit = all[0].unit;
  const designs = report.courses.map((course) => course.design);
  const points = () => report.courses.flatMap((course) => course.lines
    .filter((line) => line.chart === chart)
    .flatMap((line) => line.values.map((value, nth) => ({
      design: course.design, name: line.name, value, from: nth * course.bin_ns, until: (nth + 1) * course.bin_ns,
    })))
    .filter((point) => point.value !== null));
  const marks = report.courses.flatMap((course) => course.marks.filter((mark) => /killed/.test(mark.what)));
  figure(parent, {
    title,
    about,
    draw(width) {
      const data = points();
      const length = Math.max(...report.courses.map((course) => course.length_ns));
      return element("div", {}, key(designs), plain(width, {
        height: names.length * (names.length > 1 ? 105 : 200) + 64,
        marginTop: 26,
        x: timeAxis(width, length),
        y: { label: null, tickFormat: FORMAT[unit], ticks: 3, grid: true, nice: true },
        fy: { domain: names, axis: null, padding: 0.28 },
        color: { domain: designs, range: designs.map((_, nth) => color(nth)) },
        marks: [
          Charts.ruleY([0], { stroke: "var(--rule)" }),
          Charts.ruleX(chart === "pages" ? marks.slice(0, 200) : [], { x: "at_ns", stroke: "var(--bad)", strokeOpacity: 0.35 }),
          Charts.line(data, { x: "from", y: "value", stroke: "design", fy: "name", strokeWidth: 1.6, curve: "step-after" }),
          Charts.text(names, { fy: (name) => name, text: (name) => name, frameAnchor: "top-left", dy: -15, fontWeight: 600 }),
          Charts.tip(data, Charts.pointer({
            x: "from", y: "value", fy: "name", lineWidth: 22,
            title: (point) => `${point.design}\n${times(point.from)} to ${times(point.until)}\n${point.name}: ${exact(point.value, unit)}`,
          })),
        ],
      }));
    },
    rows() {
      const rows = report.courses.flatMap((course) => course.lines
        .filter((line) => line.chart === chart)
        .map((line) => {
          const values = line.values.filter((value) => value !== null);
          const most = values.reduce((a, b) => (Math.abs(b) > Math.abs(a) ? b : a), 0);
          const sum = values.reduce((a, b) => a + b, 0);
          const mean = values.length ? sum / values.length : 0;
          return [course.design, line.name, exact(values.at(-1) ?? 0, unit), exact(mean, unit), exact(most, unit)];
        }));
      return [["design", "what", "last", "mean", "furthest from 0"], rows];
    },
  });
}
