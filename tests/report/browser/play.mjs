// Plays with the panels of pages by the keyboard alone, and prints what came of it as JSON:
//
//     node play.mjs CHROMIUM SCREENSHOTS NAME=ADDRESS[#RUN] ...
//
// NAME is cvrp, tinystories, bep, crypto or lmol; RUN is the name of the run to choose on a page of several.
import { VIEWS, faults, launched, watch } from "./looking.mjs";

const MOST_STEPS = 60;
const [executablePath, screenshots, ...wanted] = process.argv.slice(2);

// Goes on with the key Tab until what has the focus matches a selector and has a text.
async function tabTo(page, selector, text = "") {
  for (let step = 0; step < MOST_STEPS; step++) {
    await page.keyboard.press("Tab");
    const there = await page.evaluate(([selector, text]) =>
      document.activeElement.matches(selector) && document.activeElement.textContent.includes(text), [selector, text]);
    if (there) return;
  }
  throw new Error(`the key Tab does not reach ${selector} ${text}`);
}

const within = (page, selector) => page.locator(`#panel ${selector}`);

const PLAYED = {
  async cvrp(page) {
    await tabTo(page, "svg.map");
    for (const key of ["ArrowRight", "Enter", "ArrowUp", "ArrowUp", "Enter", "ArrowLeft", "ArrowLeft", "Enter", "Enter", "Backspace"]) await page.keyboard.press(key);
    await within(page, "figure").first().waitFor();
    const told = await within(page, "[role=status]").textContent();
    return { told, customers: await within(page, "svg.map[role=application] circle").count(), tours: await within(page, "figure svg").count() };
  },
  tinystories: continued,
  bep: continued,
  async crypto(page) {
    await tabTo(page, "button", "Invent candles");
    await page.keyboard.press("Enter");
    await within(page, "svg.plot").waitFor();
    return { told: await within(page, "[role=status]").textContent(), rows: await within(page, "tbody tr").count() };
  },
  async lmol(page) {  // a model of digits
    await within(page, "tbody tr").nth(7).waitFor();  // an example is there from the beginning
    await tabTo(page, "button", "Draw digits");
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => / images, /.test(document.querySelector("#panel [role=status]").textContent));
    const drawn = await within(page, "tbody tr").count(), files = [];
    for (const place of ["drop", "row", "note"]) files.push({ name: `${place}.png`, mimeType: "image/png", buffer: await within(page, `.${place}`).first().screenshot() });
    await within(page, "input[type=file]").setInputFiles(files);
    await page.waitForFunction(() => document.querySelectorAll("#panel tbody tr").length == 3);
    await tabTo(page, "thead button", "score");
    await page.keyboard.press("Enter");
    const scores = await within(page, "tbody tr td:nth-child(3)").allTextContents(), head = await within(page, "thead [aria-sort]").textContent();
    await tabTo(page, "button", "Draw digits").catch(() => {});  // from the end of the page to its beginning
    await tabTo(page, "button", "Compare");
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => document.querySelector("#panel p:not([role]):not(.note)").textContent);
    return { told: await within(page, "[role=status]").textContent(), drawn, rows: scores.length, scores: scores.map(Number), head, answer: await within(page, "> p:not([role]):not(.note)").textContent() };
  },
};

async function continued(page) {
  await tabTo(page, "textarea");
  await page.keyboard.press("Control+A");
  await page.keyboard.type("The cat");
  await tabTo(page, "button", "Continue");
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => / pieces in /.test(document.querySelector("#panel [role=status]").textContent) || document.querySelector("#panel [role=alert]").textContent);
  const told = await within(page, "output").textContent();
  if (!await within(page, "details").count()) return { told };
  await tabTo(page, "summary");
  await page.keyboard.press("Enter");
  await tabTo(page, "button", "Boot");
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => document.querySelector("#panel pre").textContent.endsWith("\n> "));
  return { told, chip: await within(page, "pre").textContent() };
}

async function chosen(page, run) {
  if (!run) return;
  await tabTo(page, "nav button", run);
  await page.keyboard.press("Enter");
}

const browser = await launched(executablePath), found = {};
for (const word of wanted) {
  const [name, ...address] = word.split("="), [place, run] = address.join("=").split("#"), result = found[name] = { unexpected: [], faults: {}, widths: {} };
  for (const [view, options] of Object.entries(VIEWS)) {
    const context = await browser.newContext({ ...options, bypassCSP: view != "light", offline: place.startsWith("file:") });
    const page = await context.newPage();
    watch(page, place.startsWith("file:") ? /^(file|data):/ : new RegExp(`^(data:|${place})`), result.unexpected);
    await page.goto(place);
    await page.locator("#panel > *").first().waitFor();
    await chosen(page, run);
    result.played = await PLAYED[name](page);
    result.alert = (await within(page, "[role=alert]").allTextContents()).join("");
    if (await page.locator("#proof").count()) {
      await page.locator("#proof[data-difference]").waitFor();
      result.proof = { ...await page.locator("#proof").evaluate(proof => ({ ...proof.dataset })), said: await page.locator("#proof").textContent() };
    }
    result.widths[view] = await page.evaluate(() => document.documentElement.scrollWidth);
    await page.waitForTimeout(name == "cvrp" ? 1200 : 0);  // tours grow
    await page.screenshot({ path: `${screenshots}-${name}-${view}.png`, fullPage: true });
    result.faults[view] = await faults(page);
    await context.close();
  }
}
console.log(JSON.stringify(found));
await browser.close();
