// The phases of tasks over time: a victim's exit, and the helpers that empty its address space.

const OUTER = ["exit_mmap", "__oom_reap_task_mm", "process_mrelease"];
const ROWS_MAX = 36;

function reaping(parent, report) {
  const ends = (course) => course.spans.filter((span) => span.phase === "exit_mmap" && span.depth === 0);
  if (!report.courses.some((course) => course.spans.some((span) => OUTER.includes(span.phase)))) return;
  const phases = [...new Set(report.courses.flatMap((course) => course.spans.map((span) => span.phase)))].sort();
  let chosen = 0;
  // The longest exits, and the whole run.
  const windows = () => {
    const course = report.course();
    const longest = ends(course).sort((a, b) => (b.until_ns - b.from_ns) - (a.until_ns - a.from_ns)).slice(0, 20);
    const margin = (span) => Math.max(1000, (span.until_ns - span.from_ns) * 0.1);
    return [
      ...longest.map((span) => ({
        name: `exit of task ${span.task}, ${times(span.until_ns - span.from_ns)}`,
        from: Math.max(0, span.from_ns - margin(span)), until: span.until_ns + margin(span),
      })),
      { name: "the whole run", from: 0, until: course.length_ns },
    ];
  };
  const holder = element("span");
  const choose = () => {
    const all = windows();
    chosen = Math.min(chosen, all.length - 1);
    holder.replaceChildren(select("Window", all.map(({ name }) => name), (nth) => { chosen = nth; self.draw(); }, chosen));
  };
  const inside = () => {
    const { from, until } = windows()[chosen];
    return report.course().spans.filter((span) => span.until_ns >= from && span.from_ns <= until);
  };
  const rowsOf = (spans) => {
    const length = new Map();
    for (const span of spans) if (span.depth === 0) length.set(span.task, (length.get(span.task) ?? 0) + span.until_ns - span.from_ns);
    return [...length].sort((a, b) => b[1] - a[1]).slice(0, ROWS_MAX).map(([task]) => task);
  };
  choose();
  const self = figure(parent, {
    title: "Exit and helpers over time",
    about: "A row is a task: a victim that exits, the reaper, or a process that helps. The thin bars are phases inside the thick ones.",
    full: true,
    controls: [holder],
    draw(width) {
      const { from, until } = windows()[chosen];
      const spans = inside();
      const tasks = rowsOf(spans);
      const shown = spans.filter((span) => tasks.includes(span.task)).sort((a, b) => a.depth - b.depth);
      const y = (span) => tasks.indexOf(span.task);
      const inset = (span) => 0.08 + 0.22 * Math.min(span.depth, 2);
      const first = (task) => shown.find((span) => span.task === task);
      return element("div", {}, key(phases), plain(width, {
        height: Math.max(90, tasks.length * 24 + 50),
        marginLeft: Math.min(170, width * 0.36),
        x: { domain: [0, until - from], label: from > 0 ? `virtual time after ${times(from)}` : "virtual time", labelOffset: 38, tickFormat: times, ticks: ticks(width * 0.75) },
        y: { domain: [tasks.length, 0], ticks: tasks.map((_, nth) => nth + 0.5), tickSize: 0, label: null, tickFormat: (at) => `task ${tasks[Math.floor(at)]}, CPU ${first(tasks[Math.floor(at)])?.cpu}` },
        color: { domain: phases, range: phases.map((_, nth) => color(nth)) },
        marks: [
          Charts.gridX({ ticks: ticks(width * 0.75) }),
          Charts.rect(shown, {
            x1: (span) => Math.max(from, span.from_ns) - from, x2: (span) => Math.min(until, span.until_ns) - from,
            y1: (span) => y(span) + inset(span), y2: (span) => y(span) + 1 - inset(span),
            fill: "phase", stroke: "var(--paper)", strokeWidth: 0.5,
          }),
          Charts.tip(shown, Charts.pointer({
            x: (span) => (Math.max(from, span.from_ns) + Math.min(until, span.until_ns)) / 2 - from, y: (span) => y(span) + 0.5, lineWidth: 24, maxRadius: 60,
            title: (span) => `${span.phase}\ntask ${span.task} on CPU ${span.cpu}\n${times(span.until_ns - span.from_ns)} from ${times(span.from_ns)} on`,
          })),
        ],
      }));
    },
    rows: () => [
      ["task", "CPU", "phase", "inside", "began at", "took"],
      inside().slice(0, 600).map((span) => [span.task, span.cpu, span.phase, span.depth, times(span.from_ns), times(span.until_ns - span.from_ns)]),
    ],
  });
  report.onDesign.push(() => { choose(); self.redraw(); });
}
