// Opens a page in Chromium and prints what a reader gets, as JSON: node measure.mjs CHROMIUM SCREENSHOTS PAGE
// Where REPORT_SCREENSHOTS is set, screenshots go to SCREENSHOTS-light.png, -light-open.png with all details unfolded, and so on.
import { pathToFileURL } from "node:url";
import { VIEWS, faults, launched, pictured, watch } from "./looking.mjs";

const [executablePath, screenshots, file] = process.argv.slice(2);

// In the page: the ends in pixels of the verdict and of its first picture, sizes, and colours.
function sizes() {
  const bottom = name => document.querySelector(name)?.getBoundingClientRect().bottom ?? null;
  const style = getComputedStyle(document.body);
  return {
    verdict: bottom(".verdict .answer"),
    picture: bottom(".verdict :is(svg.plot, img)"),
    width: document.documentElement.scrollWidth,
    height: document.documentElement.scrollHeight,
    ink: style.color,
    paper: style.backgroundColor,
    text: Math.min(...[...document.querySelectorAll("svg.plot text")].map(text => {
      const matrix = text.getScreenCTM();  // null while folded up
      return matrix && text.getClientRects().length ? Math.hypot(matrix.a, matrix.b) * parseFloat(getComputedStyle(text).fontSize) : 99;
    })),
  };
}

async function hovered(page) {
  const curve = page.locator("svg.plot:has([data-x]):visible").last();
  if (!await curve.count()) return null;
  await curve.hover();
  return page.locator(".tip").textContent();
}

const browser = await launched(executablePath);
const found = { unexpected: [] };
for (const [view, options] of Object.entries(VIEWS)) {
  // The page is read as it is; only where its policy is ignored would a foreign script run that got into it.
  const context = await browser.newContext({ ...options, bypassCSP: view != "light" });
  const page = await context.newPage();
  watch(page, /^(file|data):/, found.unexpected);
  await page.goto(pathToFileURL(file).href);
  found[view] = await page.evaluate(sizes);
  await pictured(page, { path: `${screenshots}-${view}.png` });
  if (view == "light") {
    found[view].tip = await hovered(page);
    const pdf = await page.pdf({ format: "A4" });
    found[view].pages = pdf.toString("latin1").match(/\/Type \/Page\b/g).length;
  }
  await page.evaluate(() => document.querySelectorAll("details").forEach(each => each.open = true));
  found[view].open = await page.evaluate(sizes);
  found[view].faults = await faults(page);
  await pictured(page, { path: `${screenshots}-${view}-open.png`, fullPage: true });
  await context.close();
}
console.log(JSON.stringify(found));
await browser.close();
