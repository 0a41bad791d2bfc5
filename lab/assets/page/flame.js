// Flame graphs: where virtual time went. A frame is as wide as its share of the time.

function flames(parent, report) {
  flame(parent, report, "time", "Where the time of all CPUs went",
    "The work of all CPUs by kind, the time in which they spun for locks, and what disturbed them. Idle CPUs and waits for cache lines are left out.");
  flame(parent, report, "phases", "Time in phases and kernel work",
    "The phases of tasks and the vmstat work, with the waits for locks inside them. Below a wait is the function that held the lock.");
}

// Gives each frame its place: the time that is left of it, and its parent.
function placed(frames) {
  const open = [];
  const roots = { depth: -1, left: 0, ns: 0, used: 0, children: [] };
  return frames.map((frame) => {
    open.length = frame.depth;
    const parent = open.at(-1) ?? roots;
    const made = { ...frame, parent: open.at(-1) ?? null, left: parent.left + parent.used, used: 0, children: [] };
    parent.used += frame.ns;
    parent.children.push(made);
    open.push(made);
    return made;
  });
}

function flame(parent, report, field, title, about) {
  if (!report.courses.some((course) => course[field].length > 0)) return;
  let zoomed = null;
  const whole_ns = (frames) => frames.filter((frame) => frame.depth === 0).reduce((sum, frame) => sum + frame.ns, 0);
  const reset = element("button", { type: "button", disabled: true, onclick: () => { zoomed = null; reset.disabled = true; self.draw(); } }, "Whole");
  const share = (ns, of) => `${(100 * ns / of).toFixed(1)} %`;
  const self = figure(parent, {
    title,
    about: `${about} Click a frame, or press Enter, to see it alone.`,
    full: true,
    controls: [reset],
    draw(width) {
      const course = report.course();
      const frames = placed(course[field]);
      if (frames.length === 0) return element("p", { class: "note" }, `Under ${course.design}, there is nothing to show.`);
      const all = whole_ns(frames);
      const top = zoomed && frames.find((frame) => frame.name === zoomed.name && frame.depth === zoomed.depth && frame.left === zoomed.left);
      const [from, size] = top ? [top.left, top.ns] : [0, all];
      const deepest = Math.max(...frames.map((frame) => frame.depth));
      const visible = frames.filter((frame) =>
        frame.left < from + size && frame.left + frame.ns > from && (!top || frame.depth >= top.depth || isAbove(frame, top)));
      const drawing = svg("svg", { class: "flame", viewBox: `0 0 ${width} ${(deepest + 1) * 25}`, width, height: (deepest + 1) * 25, role: "img", "aria-label": title });
      const value = element("p", { class: "value", "aria-live": "polite" },
        `${times(all)} of CPU time in all; the machine's CPUs had ${times(course.length_ns * course.cpus)}. Point at a frame, or move with the arrow keys.`);
      const roots = frames.filter((frame) => frame.depth === 0);
      const hue = (frame) => {
        let root = frame;
        while (root.parent) root = root.parent;
        return roots.indexOf(root);
      };
      let at = top ?? visible[0];
      const boxes = new Map();
      const show = (frame) => {
        boxes.get(at)?.setAttribute("stroke", "var(--paper)");
        at = frame;
        boxes.get(at)?.setAttribute("style", "");
        for (const [of, box] of boxes) box.style.stroke = of === at ? "var(--focus)" : "";
        const often = frame.count ? `, ${whole(frame.count)} times` : "";
        value.textContent = `${frame.name}: ${times(frame.ns)}${often}, ${share(frame.ns, all)} of all`;
      };
      const zoom = (frame) => {
        zoomed = frame;
        reset.disabled = false;
        self.draw();
        self.made.querySelector(".plot [tabindex]")?.focus();
      };
      for (const frame of visible) {
        const x = Math.max(0, (frame.left - from) / size) * width;
        const right = Math.min(1, (frame.left + frame.ns - from) / size) * width;
        if (right - x < 0.4) continue;
        const box = svg("rect", { x, y: frame.depth * 25, width: right - x, height: 24, fill: `color-mix(in srgb, ${color(hue(frame))} ${Math.max(22, 52 - 10 * frame.depth)}%, var(--paper))` });
        box.addEventListener("pointerenter", () => show(frame));
        box.addEventListener("click", () => zoom(frame));
        boxes.set(frame, box);
        drawing.append(box);
        const room = Math.floor((right - x - 8) / 7);
        if (room > 2) {
          const text = frame.name.length > room ? `${frame.name.slice(0, room - 1)}…` : frame.name;
          drawing.append(svg("text", { x: x + 4, y: frame.depth * 25 + 16 }, text));
        }
      }
      const beside = (step) => {
        const row = visible.filter((frame) => frame.depth === at.depth && boxes.has(frame));
        return row[row.indexOf(at) + step];
      };
      const moves = {
        ArrowLeft: () => beside(-1),
        ArrowRight: () => beside(1),
        ArrowUp: () => at.parent,
        ArrowDown: () => at.children.find((frame) => boxes.has(frame)),
      };
      const frame = element("div", { tabindex: 0, role: "application", "aria-label": `${title}; move with the arrow keys, Enter shows a frame alone` }, drawing);
      frame.addEventListener("keydown", (event) => {
        if (event.key === "Enter") return zoom(at);
        const next = moves[event.key]?.();
        if (!moves[event.key]) return;
        event.preventDefault();
        if (next) show(next);
      });
      return element("div", {}, frame, value);
    },
    rows() {
      const frames = report.course()[field];
      const all = whole_ns(frames);
      return [["what", "time", "share", "number"], frames.map((frame) =>
        [`${"· ".repeat(frame.depth)}${frame.name}`, times(frame.ns), share(frame.ns, all), frame.count ? whole(frame.count) : "–"])];
    },
  });
  report.onDesign.push(() => { zoomed = null; reset.disabled = true; self.redraw(); });
}

function isAbove(frame, below) {
  for (let of = below; of; of = of.parent) if (of.left === frame.left && of.depth === frame.depth && of.name === frame.name) return true;
  return false;
}
