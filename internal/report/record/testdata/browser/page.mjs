// Opens a run's page in Chromium, as a person with a mouse, one with a keyboard and one with a screen reader would, and
// ends with 1 and the reasons if anything is not as it should be. Usage: node page.mjs page.html chromium screenshots/
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

const [page, program, screenshots] = process.argv.slice(2);
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const faults = [];
const must = (holds, what) => holds || faults.push(what);

const browser = await chromium.launch({ executablePath: program, args: ["--no-sandbox"] });

for (const [name, options] of Object.entries({
  light: { colorScheme: "light", viewport: { width: 1280, height: 900 } },
  dark: { colorScheme: "dark", viewport: { width: 1280, height: 900 } },
  phone: { colorScheme: "light", viewport: { width: 360, height: 740 } },
})) {
  const tab = await browser.newPage(options);
  tab.on("console", (message) => message.type() === "error" && faults.push(`${name}: console: ${message.text()}`));
  tab.on("pageerror", (error) => faults.push(`${name}: ${error}`));
  tab.on("request", (request) => request.url().startsWith("file:") || faults.push(`${name}: fetches ${request.url()}`));
  await tab.goto(pathToFileURL(page).href);
  await tab.screenshot({ path: join(screenshots, `${name}.png`), fullPage: true });

  const wide = await tab.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  must(wide <= 0, `${name}: the page is ${wide} px wider than the screen`);

  // A click on a node shows all that happened to it.
  await tab.click(".rows a >> text=worker1");
  const details = tab.locator("details:has(summary:text-matches('^worker1'))");
  must(await details.evaluate((element) => element.open), `${name}: a click on a node does not open it`);
  must((await details.innerText()).includes("failed"), `${name}: the node's events are not shown`);

  // A pointer and the arrow keys show the same.
  await tab.hover(".track[aria-label^=cp2] .bar >> nth=0");
  must((await tab.innerText("#told")).includes("port refused"), `${name}: pointing at a bar tells nothing`);
  await tab.focus(".rows li:has-text('cp2') a");
  await tab.keyboard.press("Tab");
  await tab.keyboard.press("ArrowRight");
  must((await tab.innerText("#told")).includes("installing"), `${name}: the arrow keys tell nothing`);

  // Everything is looked at, what is folded too.
  await tab.evaluate(() => document.querySelectorAll("details").forEach((element) => (element.open = true)));
  await tab.evaluate(axe);
  const { violations } = await tab.evaluate(() => globalThis.axe.run({ runOnly: ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa", "best-practice"] }));
  for (const { id, help, nodes } of violations) {
    faults.push(`${name}: axe: ${id}: ${help}: ${nodes.map((node) => node.html).slice(0, 3).join(" ")}`);
  }

  // On paper nothing is folded, and nothing is dark.
  if (name === "dark") {
    await tab.evaluate(() => document.querySelectorAll("details").forEach((element) => (element.open = false)));
    await tab.pdf({ path: join(screenshots, "paper.pdf") });
    const folded = await tab.locator("details:not([open])").count();
    must(folded === 0, `${name}: ${folded} details are folded on paper`);

    await tab.emulateMedia({ media: "print" });
    const paper = await tab.evaluate(() => getComputedStyle(document.body).backgroundColor);
    must(paper === "rgb(255, 255, 255)", `${name}: paper is ${paper}`);
  }

  await tab.close();
}

await browser.close();
faults.forEach((fault) => console.log(fault));
process.exit(faults.length > 0 ? 1 : 0);
