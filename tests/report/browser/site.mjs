// Opens the pages of a site as files and prints what was found, as JSON: node site.mjs CHROMIUM SCREENSHOTS FOLDER
// Screenshots of the index go to SCREENSHOTS-light-1280.png and so on.
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { faults, launched, watch } from "./looking.mjs";

const [executablePath, screenshots, folder] = process.argv.slice(2);
const index = pathToFileURL(join(folder, "index.html")).href;
const browser = await launched(executablePath);
const found = { unexpected: [], faults: {}, overflow: {}, seconds: {}, proofs: {} };

for (const colorScheme of ["light", "dark"]) {
  for (const width of [360, 1280]) {
    // axe is foreign to the pages' policy.
    const context = await browser.newContext({ viewport: { width, height: 800 }, colorScheme, bypassCSP: true });
    const page = await context.newPage();
    watch(page, /^(file|data|blob):/, found.unexpected);
    await page.goto(index);
    const links = await page.locator("a").evaluateAll(all => all.map(each => each.href));
    for (const address of [index, ...links]) {
      const name = `${address == index ? "index" : address.split("/").at(-2)} ${colorScheme} ${width}`;
      await page.goto(address);
      if (address != index) {
        await page.waitForSelector("#proof[data-seconds]", { timeout: 120_000 });
        found.seconds[name] = await page.locator("#proof").evaluate(each => Number(each.dataset.seconds));
        found.proofs[name] = await page.locator("#proof").textContent();
      } else if (screenshots) await page.screenshot({ path: `${screenshots}-${colorScheme}-${width}.png` });
      found.overflow[name] = await page.evaluate(() => document.documentElement.scrollWidth) - width;
      found.faults[name] = await faults(page, ["minor", "moderate", "serious", "critical"]);
    }
    await context.close();
  }
}
console.log(JSON.stringify(found));
await browser.close();
