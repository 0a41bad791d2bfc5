// A figure: a title, how to read it, its controls, and either a chart or a table of its values.

const figures = [];

// `of` has: title, about, full (whether it is as wide as the page), controls (elements), draw
// (returns an element for a width), and rows (returns the columns and rows of the table).
function figure(parent, of) {
  const plot = element("div", { class: "plot" });
  const toggle = element("button", { type: "button", "aria-pressed": "false" }, "Table");
  const made = element("figure", { class: of.full ? "full" : null, "aria-label": of.title },
    element("h4", {}, of.title),
    element("p", {}, of.about),
    element("div", { class: "controls" }, ...(of.controls ?? []), toggle),
    plot);
  let asTable = false;
  let drawn = false;
  const self = {
    made,
    draw() {
      if (!made.isConnected) return;
      drawn = true;
      const width = Math.max(260, plot.clientWidth);
      plot.replaceChildren(asTable ? table(...of.rows()) : of.draw(width));
    },
    redraw() { if (drawn) self.draw(); },
  };
  toggle.addEventListener("click", () => {
    asTable = !asTable;
    toggle.setAttribute("aria-pressed", String(asTable));
    self.draw();
  });
  parent.append(made);
  figures.push(self);
  seen.observe(made);
  return self;
}

// A chart is drawn only when it comes near the visible part of the page, so that pages open fast.
const seen = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    if (!isIntersecting) continue;
    seen.unobserve(target);
    try {
      figures.find(({ made }) => made === target).draw();
    } catch (error) {
      // The other charts are drawn, too; the console shows the fault.
      reportError(error);
    }
  }
}, { rootMargin: "500px" });

const redrawAll = () => figures.forEach((figure) => figure.redraw());

let selects = 0;
function select(label, names, onchange, value = 0) {
  const id = `select-${selects++}`;
  const made = element("select", { id }, ...names.map((name, nth) => element("option", { value: nth, selected: nth === value }, name)));
  made.addEventListener("change", () => onchange(Number(made.value)));
  return element("span", { hidden: names.length < 2 }, element("label", { for: id }, `${label} `), made);
}

// The options that all charts of Plot share. The margins leave room for the labels of axes.
const MARGIN = { top: 20, right: 20, bottom: 44, left: 62 };
const plain = (width, options) => Charts.plot({
  width,
  marginTop: MARGIN.top, marginRight: MARGIN.right, marginBottom: MARGIN.bottom, marginLeft: MARGIN.left,
  style: { background: "transparent", color: "var(--ink)", fontSize: "12px" },
  ...options,
});
const ticks = (width) => Math.max(3, Math.floor(width / 110));

// The powers of ten from `min` to `max`, and their double and fivefold if these fit `width`.
function logTicks(min, max, width) {
  const decades = Math.log10(max / min);
  const room = width / 75;
  const steps = decades * 3 < room ? [1, 2, 5] : [1];
  const every = Math.max(1, Math.ceil(decades / room));
  const found = [];
  for (let power = Math.floor(Math.log10(min)); power <= Math.ceil(Math.log10(max)); power++) {
    if (power % every === 0) found.push(...steps.map((step) => step * 10 ** power));
  }
  return found.filter((tick) => tick >= min * 0.999 && tick <= max * 1.001);
}
// An axis of CPUs has no fractions.
const cpuTick = (cpu) => (Number.isInteger(cpu) ? cpu : "");
const timeAxis = (width, length) => ({ domain: [0, length], label: "virtual time", labelOffset: 38, tickFormat: times, ticks: ticks(width) });
