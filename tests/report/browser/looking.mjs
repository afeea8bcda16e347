// How pages are looked at: the views that people have of them, and what keeps people from reading.
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

export const VIEWS = {
  light: { viewport: { width: 1280, height: 800 }, colorScheme: "light" },
  dark: { viewport: { width: 1280, height: 800 }, colorScheme: "dark" },
  telephone: { viewport: { width: 390, height: 844 }, colorScheme: "light", isMobile: true, hasTouch: true },
};
const axe = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

export const launched = executablePath => chromium.launch({ executablePath, args: ["--no-sandbox"] });

// Takes a picture for people: only where they ask for some, as Chromium draws a long page on a CPU for seconds.
export const pictured = (page, options) => process.env.REPORT_SCREENSHOTS ? page.screenshot(options) : null;

// What axe-core finds, by default serious or critical. The page's policy must be ignored in its context.
export async function faults(page, impacts = ["serious", "critical"]) {
  await page.evaluate(axe);
  return page.evaluate(async impacts => {
    const found = await axe.run(document, { resultTypes: ["violations"] });
    return found.violations.filter(each => impacts.includes(each.impact))
      .map(each => `${each.id}: ${each.nodes.slice(0, 3).map(node => node.html.slice(0, 200)).join(" | ")}`);
  }, impacts);
}

// Puts into `found` what the page asks for that does not begin with `known`, and what it complains of.
export function watch(page, known, found) {
  page.on("request", request => known.test(request.url()) || found.push(request.url()));
  page.on("pageerror", error => found.push(String(error)));
  page.on("console", message => found.push(message.text()));
  page.on("dialog", dialog => { found.push(dialog.message()); dialog.dismiss(); });
}
