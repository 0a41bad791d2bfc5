// Charts of waits for locks: their distribution, and the call sites of waiters and holders.

const locksOf = (report) => [...new Set(report.courses.flatMap((course) => course.waits.map((row) => row.lock)))];

// The waits of a design for a lock by length: pairs of a length and the number of waits up to it.
function lengths(course, lock) {
  const sums = new Map();
  for (const row of course.waits.filter((row) => lock === "all locks" || row.lock === lock)) {
    for (const [bin, count] of row.hist) sums.set(bin, (sums.get(bin) ?? 0) + count);
  }
  let upTo = 0;
  return [...sums].sort((a, b) => a[0] - b[0]).map(([bin, count]) => [2 ** ((bin + 1) / 8), (upTo += count)]);
}

function distribution(parent, report) {
  const locks = locksOf(report);
  if (locks.length === 0) return;
  const choices = locks.length > 1 ? [...locks, "all locks"] : locks;
  let lock = choices[0];
  let tail = false;
  const designs = report.courses.map((course) => course.design);
  const toggle = element("button", {
    type: "button", "aria-pressed": "false",
    onclick: () => { tail = !tail; toggle.setAttribute("aria-pressed", String(tail)); self.draw(); },
  }, "Longer than");
  const points = () => report.courses.flatMap((course) => {
    const found = lengths(course, lock);
    const all = found.at(-1)?.[1] ?? 0;
    return found
      .map(([ns, upTo]) => ({ design: course.design, ns, count: tail ? all - upTo : upTo, share: tail ? (all - upTo) / all : upTo / all, all }))
      .filter(({ share }) => !tail || share > 0);
  });
  const self = figure(parent, {
    title: "How long waits are",
    about: "The share of the waits that are at most, or with the button longer than, the length on the logarithmic axis.",
    controls: [select("Lock", choices, (nth) => { lock = choices[nth]; self.draw(); }), toggle],
    draw(width) {
      const data = points();
      const spread = data.map(({ ns }) => ns);
      const [min, max] = [Math.min(...spread), Math.max(...spread)];
      const without = designs.filter((design) => !data.some((point) => point.design === design));
      const none = without.length > 0 ? element("p", { class: "note" }, `No wait under ${without.join(" and ")}.`) : null;
      const words = tail ? "longer than" : "at most";
      return element("div", {}, key(designs), none ?? "", plain(width, {
        height: width > 500 ? 420 : 300,
        x: { type: "log", label: "length of a wait", labelOffset: 38, tickFormat: times, ticks: logTicks(min, max, width), grid: true },
        y: { type: tail ? "log" : "linear", label: `share of the waits that are ${words} this long`, tickFormat: (share) => `${+(100 * share).toPrecision(3)} %`, grid: true, ticks: 5, ...(tail ? {} : { domain: [0, 1] }) },
        color: { domain: designs, range: designs.map((_, nth) => color(nth)) },
        marks: [
          Charts.line(data, { x: "ns", y: "share", stroke: "design", strokeWidth: 2, curve: "step-after" }),
          Charts.tip(data, Charts.pointer({
            x: "ns", y: "share",
            title: (point) => `${point.design}\n${whole(point.count)} of ${whole(point.all)} waits (${(100 * point.share).toFixed(2)} %)\nare ${words} ${times(point.ns)}`,
          })),
        ],
      }));
    },
    rows() {
      const parts = [0.5, 0.9, 0.99, 0.999, 1];
      const rows = report.courses.map((course) => {
        const found = lengths(course, lock);
        const all = found.at(-1)?.[1] ?? 0;
        const at = (part) => found.find(([, upTo]) => upTo >= part * all)?.[0];
        return [course.design, whole(all), ...parts.map((part) => (all ? `≤ ${times(at(part))}` : "–"))];
      });
      return [["design", "waits", "half", "90 %", "99 %", "99.9 %", "all"], rows];
    },
  });
}

// Bars with one group for each row. A bar is drawn for each design.
function bars(width, rows, value, unit, label, designs, says) {
  const names = [...new Set(rows.map((row) => row.name))].slice(0, 14);
  const shown = rows.filter((row) => names.includes(row.name));
  const left = Math.min(330, width * 0.46);
  const room = Math.floor(left / 6.6);
  const short = (name) => (name.length > room ? `${name.slice(0, room - 1)}…` : name);
  return element("div", {}, key(designs), plain(width, {
    height: names.length * (designs.length * 13 + 16) + 50,
    marginLeft: left,
    marginRight: 66,
    x: { label, labelOffset: 38, tickFormat: FORMAT[unit], ticks: ticks(width - left), grid: true, nice: true },
    y: { domain: designs, axis: null, padding: 0.1 },
    fy: { domain: names, label: null, tickFormat: short, padding: 0.18 },
    facet: { marginLeft: left },
    color: { domain: designs, range: designs.map((_, nth) => color(nth)) },
    marks: [
      Charts.barX(shown, { x: value, y: "design", fy: "name", fill: "design" }),
      Charts.text(shown, { x: value, y: "design", fy: "name", text: (row) => FORMAT[unit](row[value]), textAnchor: "start", dx: 4, fontSize: 11 }),
      Charts.axisFy({ anchor: "left", label: null, tickFormat: short, textAnchor: "end" }),
      Charts.ruleX([0]),
      Charts.tip(shown, Charts.pointerY({ x: value, y: "design", fy: "name", title: says, lineWidth: 24 })),
    ],
  }));
}

const MEASURES = [
  ["total_ns", "nanos", "sum of the waits"],
  ["count", "count", "number of waits"],
  ["max_ns", "nanos", "longest wait"],
];

function callSites(parent, report) {
  if (locksOf(report).length === 0) return;
  let [value, unit, label] = MEASURES[0];
  const designs = report.courses.map((course) => course.design);
  const rows = () => report.courses
    .flatMap(({ design, waits }) => waits.map((row) => ({ ...row, design, name: `${row.site} (${row.lock})` })))
    .sort((a, b) => b[value] - a[value]);
  const says = (row) => `${row.design}: ${row.name}\n${whole(row.count)} waits, ${times(row.total_ns)} in all\nlongest ${times(row.max_ns)}`;
  const self = figure(parent, {
    title: "Which call sites wait",
    about: "The function that wanted the lock, and the lock, with the names that Linux has for them.",
    controls: [select("Measure", MEASURES.map((of) => of[2]), (nth) => { [value, unit, label] = MEASURES[nth]; self.draw(); })],
    draw: (width) => bars(width, rows(), value, unit, label, designs, says),
    rows: () => [
      ["design", "call site", "lock", "waits", "in a trace of Linux", "in all", "longest"],
      rows().map((row) => [row.design, row.site, row.lock, whole(row.count), whole(row.traced), times(row.total_ns), times(row.max_ns)]),
    ],
  });
}

function holders(parent, report) {
  if (locksOf(report).length === 0) return;
  const designs = report.courses.map((course) => course.design);
  const sum = () => {
    const sums = new Map();
    for (const { design, pairs } of report.courses) {
      for (const pair of pairs) {
        const name = `${pair.holder} (${pair.lock})`;
        const id = `${design}\n${name}`;
        const row = sums.get(id) ?? { design, name, count: 0, total_ns: 0, max_ns: 0 };
        row.count += pair.count;
        row.total_ns += pair.total_ns;
        row.max_ns = Math.max(row.max_ns, pair.max_ns);
        sums.set(id, row);
      }
    }
    return [...sums.values()].sort((a, b) => b.total_ns - a.total_ns);
  };
  const says = (row) => `${row.design}: held in ${row.name}\n${whole(row.count)} waits, ${times(row.total_ns)} in all\nlongest ${times(row.max_ns)}`;
  figure(parent, {
    title: "Which call sites let others wait",
    about: "The function that held the lock while another CPU waited for it, by the sum of these waits.",
    draw: (width) => bars(width, sum(), "total_ns", "nanos", "sum of the waits", designs, says),
    rows: () => [
      ["design", "waited in", "held in", "lock", "waits", "in all", "longest"],
      report.courses.flatMap(({ design, pairs }) => pairs.map((pair) =>
        [design, pair.site, pair.holder, pair.lock, whole(pair.count), times(pair.total_ns), times(pair.max_ns)])),
    ],
  });
}
