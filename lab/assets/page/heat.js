// Heat maps: the CPUs over virtual time, and the CPUs that waited for each other.

// Paints cells to an image of one pixel for each cell. `value` maps a cell's value to 0 to 1.
function painted(columns, rows, values, value) {
  const canvas = element("canvas", { width: columns, height: rows });
  const context = canvas.getContext("2d");
  const image = context.createImageData(columns, rows);
  const shades = Array.from({ length: 256 }, (_, nth) => {
    const text = ramp(nth / 255);
    return text.startsWith("#")
      ? [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16))
      : text.match(/\d+/g).map(Number);
  });
  values.forEach((cell, nth) => {
    if (cell === 0) return;
    const shade = shades[Math.round(255 * Math.min(1, Math.max(0, value(cell))))];
    image.data.set([...shade, 255], 4 * nth);
  });
  context.putImageData(image, 0, 0);
  return canvas.toDataURL();
}

function logScale(max) {
  const top = Math.log(Math.max(2, max));
  return (cell) => Math.log(Math.max(1, cell)) / top;
}

const rampLegend = (label, max, unit, width) => Charts.legend({
  color: {
    type: "log", domain: [1, Math.max(2, max)], interpolate: ramp, label, tickFormat: FORMAT[unit],
    ticks: logTicks(1, Math.max(2, max), Math.min(300, width)),
  },
  width: Math.min(300, width),
  style: { background: "transparent", color: "var(--ink)" },
});

// A drawing with a grid of cells under it. The arrow keys and the pointer move a cursor from cell
// to cell; `says(column, row)` is the text about the cell under the cursor.
function grid(plot, columns, rows, toCell, toPlace, says, label) {
  const value = element("p", { class: "value", "aria-live": "polite" }, "Point at the map, or move the cursor with the arrow keys.");
  const frame = element("div", { tabindex: 0, role: "application", "aria-label": label });
  const cursor = svg("rect", { fill: "none", stroke: "var(--focus)", "stroke-width": 2, "pointer-events": "none", visibility: "hidden" });
  plot.append(cursor);
  frame.append(plot);
  let at = [0, 0];
  const show = (column, row) => {
    at = [Math.min(columns - 1, Math.max(0, column)), Math.min(rows - 1, Math.max(0, row))];
    const [x, y, width, height] = toPlace(...at);
    for (const [name, number] of Object.entries({ x, y, width, height })) cursor.setAttribute(name, number);
    cursor.setAttribute("visibility", "visible");
    value.textContent = says(...at);
  };
  frame.addEventListener("keydown", (event) => {
    const step = event.shiftKey ? 10 : 1;
    const move = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, step], ArrowDown: [0, -step] }[event.key];
    if (!move) return;
    event.preventDefault();
    show(at[0] + move[0], at[1] + move[1]);
  });
  plot.addEventListener("pointermove", (event) => {
    const box = plot.getBoundingClientRect();
    const size = plot.viewBox.baseVal;
    const cell = toCell((event.clientX - box.left) * size.width / box.width, (event.clientY - box.top) * size.height / box.height);
    if (cell) show(...cell);
  });
  return [frame, value];
}

// The CPUs over virtual time: which CPU waited, let others wait, ran vmstat work, or has pages.
function cpuMap(parent, report) {
  const names = [...new Set(report.courses.flatMap((course) => course.maps.map((map) => map.name)))];
  if (names.length === 0) return;
  const withMap = (name) => report.courses.some((course) => course.maps.some((map) => map.name === name));
  const wanted = ["waited for zone->lock", "ran vmstat work", ...names].find(withMap);
  let name = wanted;
  const course = () => report.course();
  const map = () => course().maps.find((map) => map.name === name);
  // The longest waits for the lock that the map is about.
  const longest = () => course().longest.filter((wait) => name.endsWith(wait.lock)).slice(0, 40);
  const cpusOf = (map, row) => {
    const first = row * map.cpus_per_row;
    return map.cpus_per_row === 1 ? `CPU ${first}` : `CPUs ${first} to ${Math.min(course().cpus, first + map.cpus_per_row) - 1}`;
  };
  const sentence = (wait) =>
    `CPU ${wait.cpu} waited ${times(wait.wait_ns)} for CPU ${wait.holder_cpu} from ${times(wait.from_ns)} on: ` +
    `it wanted ${wait.lock} in ${wait.site}, which was held in ${wait.holder}.`;
  const self = figure(parent, {
    title: "What each CPU did over virtual time",
    about: "A row is a CPU, a column an interval of virtual time. A circle is one of the 40 longest waits; point at it to see for whom the CPU waited.",
    full: true,
    controls: [select("Show", names, (nth) => { name = names[nth]; self.draw(); }, names.indexOf(wanted))],
    draw(width) {
      const of = map();
      if (!of) return element("p", { class: "note" }, `Under ${course().design}, no CPU ${name}.`);
      const values = cellsOf(of);
      const column_ns = course().bin_ns * of.bins_per_column;
      const [right, cpus] = [of.columns * column_ns, of.rows * of.cpus_per_row];
      const height = Math.min(560, Math.max(200, of.rows * (of.rows > 128 ? 1.4 : 4) + 60));
      const waits = longest();
      const plot = plain(width, {
        height,
        x: { ...timeAxis(width, right) },
        y: { domain: [0, cpus], label: "CPU", tickFormat: cpuTick },
        marks: [
          Charts.image([0], {
            x: right / 2, y: cpus / 2, width: width - MARGIN.left - MARGIN.right, height: height - MARGIN.top - MARGIN.bottom,
            src: () => painted(of.columns, of.rows, flipped(values, of), logScale(of.max)),
            preserveAspectRatio: "none", imageRendering: "pixelated",
          }),
          Charts.frame({ stroke: "var(--rule)" }),
          Charts.link(waits, Charts.pointer({
            px: "from_ns", py: (wait) => wait.cpu + 0.5,
            x1: "from_ns", x2: "from_ns", y1: (wait) => wait.cpu + 0.5, y2: (wait) => wait.holder_cpu + 0.5,
            stroke: "var(--focus)", strokeWidth: 2, markerEnd: "arrow",
          })),
          Charts.dot(waits, { x: "from_ns", y: (wait) => wait.cpu + 0.5, r: 4, stroke: "var(--focus)", strokeWidth: 1.5 }),
          Charts.tip(waits, Charts.pointer({ x: "from_ns", y: (wait) => wait.cpu + 0.5, title: sentence, lineWidth: 26, maxRadius: 12 })),
        ],
      });
      const [x, y] = [plot.scale("x"), plot.scale("y")];
      const says = (column, row) => {
        const cell = values[row * of.columns + column];
        const span = `${times(column * column_ns)} to ${times((column + 1) * column_ns)}`;
        const what = cell === 0 ? "nothing" : `about ${exact(cell, of.unit)}`;
        return `${cpusOf(of, row)}, ${span}: ${name}: ${what}.`;
      };
      const cells = grid(plot, of.columns, of.rows,
        (left, top) => {
          const cell = [Math.floor(x.invert(left) / column_ns), Math.floor(y.invert(top) / of.cpus_per_row)];
          return cell[0] >= 0 && cell[0] < of.columns && cell[1] >= 0 && cell[1] < of.rows ? cell : null;
        },
        (column, row) => {
          const [left, top] = [x.apply(column * column_ns), y.apply((row + 1) * of.cpus_per_row)];
          return [left, top, x.apply((column + 1) * column_ns) - left, y.apply(row * of.cpus_per_row) - top];
        },
        says, `Map of ${name}; move with the arrow keys`);
      return element("div", {}, rampLegend(`${name}: ${UNIT[of.unit]} per ${times(column_ns)}`, of.max, of.unit, width), ...cells);
    },
    rows() {
      const of = map();
      if (!of) return [["CPU"], []];
      const values = cellsOf(of);
      const rows = [];
      for (let row = 0; row < of.rows; row++) {
        const cells = values.subarray(row * of.columns, (row + 1) * of.columns);
        const sum = cells.reduce((a, b) => a + b, 0);
        const most = cells.reduce((a, b) => Math.max(a, b), 0);
        rows.push([cpusOf(of, row), of.unit === "pages" ? "–" : exact(sum, of.unit), exact(most, of.unit)]);
      }
      return [["CPU", "in all, about", "most in a column, about"], rows];
    },
  });
  report.onDesign.push(() => self.redraw());
}

// Images have their first row at the top, and the chart has CPU 0 at the bottom.
function flipped(values, map) {
  const turned = new Float64Array(values.length);
  for (let row = 0; row < map.rows; row++) {
    turned.set(values.subarray(row * map.columns, (row + 1) * map.columns), (map.rows - 1 - row) * map.columns);
  }
  return turned;
}

// The CPUs that waited, and the CPUs that held the lock.
function between(parent, report) {
  if (!report.courses.some((course) => course.between)) return;
  const self = figure(parent, {
    title: "Which CPUs waited for which",
    about: "The sum of all waits for locks. A row is the CPU that waited, a column the CPU that held the lock.",
    draw(width) {
      const { between, cpus, design } = report.course();
      if (!between) return element("p", { class: "note" }, `Under ${design}, no CPU waited.`);
      const groups = Math.ceil(cpus / between.cpus_per_group);
      const values = new Float64Array(groups * groups);
      let max = 0;
      for (const [waiter, holder, ns] of between.cells) {
        values[(groups - 1 - waiter) * groups + holder] = ns;
        max = Math.max(max, ns);
      }
      const top = groups * between.cpus_per_group;
      const size = Math.min(width, 520);
      const plot = plain(size, {
        height: size - 20,
        x: { domain: [0, top], label: "CPU that held the lock", labelOffset: 38, ticks: ticks(size), tickFormat: cpuTick },
        y: { domain: [0, top], label: "CPU that waited", tickFormat: cpuTick },
        marks: [
          Charts.image([0], {
            x: top / 2, y: top / 2, width: size - MARGIN.left - MARGIN.right, height: size - 20 - MARGIN.top - MARGIN.bottom,
            src: () => painted(groups, groups, values, logScale(max)),
            preserveAspectRatio: "none", imageRendering: "pixelated",
          }),
          Charts.frame({ stroke: "var(--rule)" }),
        ],
      });
      const [x, y, per] = [plot.scale("x"), plot.scale("y"), between.cpus_per_group];
      const name = (group) => (per === 1 ? `CPU ${group}` : `CPUs ${group * per} to ${Math.min(cpus, (group + 1) * per) - 1}`);
      const says = (holder, waiter) =>
        `${name(waiter)} waited ${times(values[(groups - 1 - waiter) * groups + holder])} for ${name(holder)}.`;
      const cells = grid(plot, groups, groups,
        (left, height) => {
          const cell = [Math.floor(x.invert(left) / per), Math.floor(y.invert(height) / per)];
          return cell.every((group) => group >= 0 && group < groups) ? cell : null;
        },
        (holder, waiter) => {
          const [left, height] = [x.apply(holder * per), y.apply((waiter + 1) * per)];
          return [left, height, x.apply((holder + 1) * per) - left, y.apply(waiter * per) - height];
        },
        says, "Map of waits between CPUs; move with the arrow keys");
      return element("div", {}, rampLegend("sum of waits", max, "nanos", width), ...cells);
    },
    rows() {
      const cells = [...(report.course().between?.cells ?? [])].sort((a, b) => b[2] - a[2]).slice(0, 500);
      const per = report.course().between?.cpus_per_group ?? 1;
      const name = (group) => (per === 1 ? `${group}` : `${group * per}–${(group + 1) * per - 1}`);
      return [["CPUs that waited", "CPUs that held", "sum of waits"], cells.map(([a, b, ns]) => [name(a), name(b), times(ns)])];
    },
  });
  report.onDesign.push(() => self.redraw());
}
