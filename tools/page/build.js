// Bundles the chart library, and collects the licences of all packages that the bundle contains.
import { build } from "esbuild";
import { readFileSync, readdirSync, writeFileSync } from "node:fs";

const assets = "../../lab/assets";
const { metafile } = await build({
  entryPoints: ["charts.js"],
  bundle: true,
  minify: true,
  format: "iife",
  globalName: "Charts",
  target: "es2022",
  charset: "ascii",
  legalComments: "none",
  outfile: `${assets}/charts.min.js`,
  metafile: true,
});
const [output] = Object.values(metafile.outputs);
const packages = new Set();
for (const [path, { bytesInOutput }] of Object.entries(output.inputs)) {
  const found = path.match(/^node_modules\/(@[^/]+\/[^/]+|[^/]+)\//);
  if (found && bytesInOutput > 0) packages.add(found[1]);
}
const part = (name) => {
  const folder = `node_modules/${name}`;
  const { version, license } = JSON.parse(readFileSync(`${folder}/package.json`, "utf8"));
  const file = readdirSync(folder).find((file) => /^(un)?licen[cs]e(\.|$)/i.test(file));
  const text = file ? readFileSync(`${folder}/${file}`, "utf8").trim() : "(The package has no file with the text.)";
  return `${name} ${version}: ${license}\n\n${text}\n`;
};
const rule = `\n${"-".repeat(80)}\n\n`;
const head = "charts.min.js contains parts of these packages:\n\n";
const text = head + [...packages].sort().map(part).join(rule);
writeFileSync(`${assets}/charts.licences.txt`, text);
