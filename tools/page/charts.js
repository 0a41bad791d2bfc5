// The parts of Observable Plot that pages use. `npm run build` bundles them, with what they need of
// D3, into lab/assets/charts.min.js.
export {
  plot, image, rect, barX, ruleX, ruleY, line, text, dot, tip, link, legend,
  axisFy, gridX, pointer, pointerY, frame,
} from "@observablehq/plot";
export { interpolateCividis } from "d3-scale-chromatic";
