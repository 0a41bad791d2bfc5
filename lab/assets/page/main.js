// Builds the charts of each report below its answer.

function charts(parent, report, nth) {
  if (report.courses.length === 0) return;
  let chosen = 0;
  report.course = () => report.courses[chosen];
  report.onDesign = [];
  const { seed, cpus, length_ns, bin_ns } = report.courses[0];
  parent.append(
    element("h3", {}, "The course of one run"),
    element("p", { class: "note" },
      `One run of each design with seed ${seed}: ${whole(cpus)} CPUs for ${times(length_ns)} of virtual time, in intervals of ${times(bin_ns)}. ` +
      "The figures above are from all seeds."),
  );
  if (report.left_out > 0) {
    parent.append(element("p", { class: "note" }, `${report.left_out} more designs ran; the charts show those of the answer.`));
  }
  if (report.courses.length > 1) {
    const choices = report.courses.map(({ design }, at) => element("label", {},
      element("input", {
        type: "radio", name: `design-${nth}`, value: at, checked: at === chosen,
        onchange: () => { chosen = at; report.onDesign.forEach((draw) => draw()); },
      }), ` ${design}`));
    parent.append(element("fieldset", { class: "designs" }, element("legend", {}, "Maps, phases and flame graphs show"), ...choices));
  }
  const grid = element("div", { class: "charts" });
  parent.append(grid);
  for (const draw of [cpuMap, distribution, between, callSites, holders, lines, reaping, flames]) draw(grid, report);
}

function start() {
  const { reports } = JSON.parse(document.getElementById("data").textContent);
  startTheme(redrawAll);
  reports.forEach((report, nth) => charts(document.getElementById(`charts-${nth}`), report, nth));
  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth === width) return;
    width = innerWidth;
    redrawAll();
  });
  document.documentElement.dataset.ready = "true";
}

start();
