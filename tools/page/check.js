// Tests pages in headless Chromium: node check.js PLIMSOLL FOLDER
//
// Makes pages with the command PLIMSOLL in FOLDER, opens each in three widths and both themes, and
// fails if the console has an error, if anything is loaded, if a control does not work with the
// keyboard, if the page is wider than the window, or if it is too large or too slow. Screenshots
// are left in FOLDER.
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, statSync } from "node:fs";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

const [plimsoll, folder] = process.argv.slice(2).map((path) => resolve(path));
const browsers = [process.env.CHROMIUM, "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
const executablePath = browsers.find((path) => path && existsSync(path));
const WIDTHS = [360, 800, 1400];
const BYTES_MAX = 5_000_000;
const MS_MAX = 2_000;
const common = ["--seeds", "6", "--no-store"];
const CASES = {
  waits: {
    args: ["compare", "stress-vm-bursts", "--machine", "epyc-9654-2s", "--length-ms", "5000", ...common],
    charts: ["What each CPU did over virtual time", "How long waits are", "Which CPUs waited for which", "Which call sites wait",
      "Which call sites let others wait", "Waits over time", "Vmstat work over time", "Page lists over time",
      "Pages that move between lists and zones", "Where the time of all CPUs went", "Time in phases and kernel work"],
  },
  reaping: {
    args: ["compare", "killed-apps", "--machine", "phone-8", ...common],
    charts: ["What each CPU did over virtual time", "Exit and helpers over time", "Time in phases and kernel work"],
  },
  reclaim: {
    args: ["compare", "overcommit", "--machine", "phone-8", "--a", "linux", "--b", "linux+bounded", "--length-ms", "300", ...common],
    charts: ["Reclaimed pages over time", "Page lists over time"],
  },
  rss: {
    args: ["reproduce", "rss-accuracy", "rss-cost", "--quick", "--no-store"],
    charts: ["Error of the resident-page counter", "Resident pages"],
  },
};

const problems = [];
const check = (ok, what) => { if (!ok) problems.push(what); };

function make(name, args) {
  const file = `${folder}/${name}.html`;
  execFileSync(plimsoll, [...args, "--html", file], { stdio: ["ignore", "ignore", "inherit"] });
  const { size } = statSync(file);
  check(size <= BYTES_MAX, `${name}: the page has ${size} bytes, more than ${BYTES_MAX}`);
  return { file, size };
}

// Opens a page, and reports what its console says and what it loads.
async function open(browser, name, file, width, colorScheme) {
  const context = await browser.newContext({ viewport: { width, height: 900 }, colorScheme });
  const page = await context.newPage();
  const where = `${name}, ${width} px, ${colorScheme}`;
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) problems.push(`${where}: the console says: ${message.text()}`);
  });
  page.on("pageerror", (error) => problems.push(`${where}: a script failed: ${error.stack}`));
  page.on("request", (request) => {
    if (!/^(file|data|blob):/.test(request.url())) problems.push(`${where}: loads ${request.url()}`);
  });
  const began = performance.now();
  await page.goto(pathToFileURL(file).href);
  await page.waitForFunction(() => document.documentElement.dataset.ready === "true");
  const ms = performance.now() - began;
  return { page, where, ms, close: () => context.close() };
}

// Scrolls through the page, so that every chart is drawn.
const drawAll = (page) => page.evaluate(async () => {
  for (const figure of document.querySelectorAll("figure")) {
    figure.scrollIntoView({ block: "center" });
    await new Promise((done) => setTimeout(done, 60));
  }
  scrollTo(0, 0);
});

async function look(page, where, titles) {
  await drawAll(page);
  const found = await page.$$eval("figure", (all) => all.map((figure) => ({
    title: figure.querySelector("h4").textContent,
    drawn: figure.querySelectorAll(".plot svg, .plot .note").length > 0,
  })));
  for (const title of titles) check(found.some((figure) => figure.title === title), `${where}: the chart "${title}" is missing`);
  for (const { title, drawn } of found) check(drawn, `${where}: the chart "${title}" is empty`);
  const widths = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
  check(widths[0] <= widths[1], `${where}: the page is ${widths[0]} px wide`);
  const text = await page.evaluate(() => document.body.innerText);
  for (const bad of ["NaN", "undefined", "Infinity", "[object"]) check(!text.includes(bad), `${where}: the page says "${bad}"`);
}

// Uses every kind of control with the keyboard alone.
async function useKeyboard(page, where) {
  const theme = page.locator("#theme");
  const before = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  await theme.focus();
  await page.keyboard.press("Enter");
  const after = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  check(before !== after, `${where}: Enter on the button does not change the theme`);
  await page.keyboard.press("Enter");

  const toggles = page.locator("figure button", { hasText: /^Table$/ });
  for (let nth = 0; nth < await toggles.count(); nth++) {
    const toggle = toggles.nth(nth);
    const figure = toggle.locator("xpath=ancestor::figure");
    await toggle.focus();
    await page.keyboard.press("Space");
    const title = await figure.locator("h4").innerText();
    check(await figure.locator(".plot table tbody tr").count() > 0, `${where}: "${title}" has no table`);
    await page.keyboard.press("Space");
    check(await figure.locator(".plot table").count() === 0, `${where}: "${title}" does not return to its chart`);
  }

  const radios = page.locator(".designs input");
  if (await radios.count() > 1) {
    const marks = () => page.locator(".charts").first().innerHTML();
    const shown = await marks();
    await radios.first().focus();
    await page.keyboard.press("ArrowDown");
    check(await radios.nth(1).isChecked(), `${where}: the arrow keys do not change the design`);
    check(await marks() !== shown, `${where}: another design draws the same charts`);
  }

  for (const map of await page.locator("[role=application]").all()) {
    await map.focus();
    await page.keyboard.press("ArrowRight");
    const one = await map.locator("xpath=following-sibling::p").innerText();
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("ArrowUp");
    await page.keyboard.press("ArrowUp");
    const other = await map.locator("xpath=following-sibling::p").innerText();
    check(/\d/.test(one) && /\d/.test(other), `${where}: the arrow keys show no value: ${one}`);
  }

  const unreachable = await page.evaluate(() => [...document.querySelectorAll("button, select, input, summary, a")]
    .filter((one) => one.tabIndex < 0).length);
  check(unreachable === 0, `${where}: ${unreachable} controls cannot be reached with the keyboard`);
}

// Text must differ enough from the paper: at least 4.5 to 1 (WCAG AA).
const contrast = (page) => page.evaluate(() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const light = (color) => {
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3)
      .map((part) => part / 255).map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const paper = light(getComputedStyle(document.body).backgroundColor);
  const low = new Set();
  for (const one of document.querySelectorAll("h2, h4, p, td, th, summary, label, .better, .worse, a, .command")) {
    const ink = light(getComputedStyle(one).color);
    const ratio = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
    if (ratio < 4.5) low.add(`${one.tagName}.${one.className}: ${ratio.toFixed(1)}`);
  }
  return [...low];
});

mkdirSync(folder, { recursive: true });
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
for (const [name, { args, charts }] of Object.entries(CASES)) {
  const { file, size } = make(name, args);
  let slowest = 0;
  for (const width of WIDTHS) {
    for (const scheme of ["light", "dark"]) {
      const { page, where, ms, close } = await open(browser, name, file, width, scheme);
      slowest = Math.max(slowest, ms);
      await look(page, where, charts);
      for (const low of await contrast(page)) problems.push(`${where}: the contrast of ${low} is too low`);
      await page.screenshot({ path: `${folder}/${name}-${width}-${scheme}.png`, fullPage: true });
      if (scheme === "light" && width !== 800) await useKeyboard(page, where);
      await close();
    }
  }
  check(slowest <= MS_MAX, `${name}: opens in ${Math.round(slowest)} ms, more than ${MS_MAX}`);
  console.log(`${name}: ${(size / 1e6).toFixed(2)} MB, opens in at most ${Math.round(slowest)} ms`);
}
await browser.close();
for (const problem of [...new Set(problems)]) console.error(problem);
console.log(problems.length === 0 ? "all pages work" : `${problems.length} problems`);
process.exit(problems.length === 0 ? 0 : 1);
