// Helpers: elements, numbers with their units, the theme, and the data of the page.

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value != null) made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child != null));
  return made;
}

function svg(name, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

const three = (value) => {
  const size = Math.abs(value);
  const digits = size >= 100 ? 0 : size >= 10 ? 1 : 2;
  return Number(value.toFixed(digits)).toLocaleString("en-US", { maximumFractionDigits: digits });
};

const scaled = (value, steps) => {
  const [size, unit] = steps.find(([size]) => Math.abs(value) >= size) ?? steps.at(-1);
  return `${three(value / size)} ${unit}`.trim();
};

const FORMAT = {
  nanos: (ns) => (ns === 0 ? "0" : scaled(ns, [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]])),
  count: (count) => scaled(count, [[1e9, "G"], [1e6, "M"], [1e4 / 10, "k"], [1, ""]]),
  pages: (pages) => scaled(pages, [[1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]]),
};
const UNIT = { nanos: "time", count: "number", pages: "pages" };
const whole = (value) => Math.round(value).toLocaleString("en-US");
const exact = (value, unit) => (unit === "nanos" ? FORMAT.nanos(value) : whole(value));
const times = (value) => FORMAT.nanos(value);

// The colours of designs, phases and frames.
const color = (nth) => `var(--c${nth % 8})`;
const key = (names, of = color) =>
  element("div", { class: "key" }, ...names.map((name, nth) => element("span", { style: `--of:${of(nth)}` }, name)));

const isDark = () => {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
};
// Few is light on white and dark on black, so that empty cells and small values recede.
const ramp = (t) => Charts.interpolateCividis(isDark() ? 0.12 + 0.88 * t : 1 - t);

function startTheme(redraw) {
  const button = document.getElementById("theme");
  const name = () => {
    button.textContent = isDark() ? "Light" : "Dark";
    button.setAttribute("aria-label", `Switch to the ${isDark() ? "light" : "dark"} theme`);
  };
  button.addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    name();
    redraw();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { name(); redraw(); });
  button.hidden = false;
  name();
}

// The values of a map: a byte is 0 for an empty cell, and is followed by a run's length minus 1.
function cellsOf(map) {
  if (map.values) return map.values;
  const bytes = Uint8Array.from(atob(map.cells), (char) => char.charCodeAt(0));
  const values = new Float64Array(map.rows * map.columns);
  let at = 0;
  for (let nth = 0; nth < bytes.length; nth++) {
    if (bytes[nth] === 0) at += bytes[++nth] + 1;
    else values[at++] = 2 ** ((bytes[nth] - 1) / 6);
  }
  return (map.values = values);
}

function table(columns, rows) {
  const right = rows.length ? rows[0].map((cell) => typeof cell === "number" || /^[-−]?[\d.,]+( |$)/.test(cell)) : [];
  const cells = (name, row) => row.map((cell, nth) => element(name, { class: right[nth] ? "r" : null }, String(cell)));
  return element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "table" },
    element("table", {},
      element("thead", {}, element("tr", {}, ...cells("th", columns))),
      element("tbody", {}, ...rows.map((row) => element("tr", {}, ...cells("td", row))))));
}
