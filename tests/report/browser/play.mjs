// Plays with the panels of pages by the keyboard alone, and prints what came of it as JSON:
//
//     node play.mjs CHROMIUM SCREENSHOTS NAME=ADDRESS[#RUN] ...
//
// NAME is cvrp, tinystories, bep, crypto or lmol; RUN is the name of the run to choose on a page of several.
import { VIEWS, faults, launched, pictured, watch } from "./looking.mjs";

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
    const ways = within(page, "g[data-solver]"), shown = () => page.evaluate(() => document.querySelector("#panel path.route:not(.faint)").parentNode.dataset.solver);
    await ways.first().waitFor({ state: "attached" });
    const opened = await within(page, "[role=status]").textContent(), width = (await within(page, "svg.map").boundingBox()).width;
    await tabTo(page, "input[type=file]");
    await within(page, "input[type=file]").setInputFiles({ name: "mine.csv", mimeType: "text/csv", buffer: Buffer.from("name,lat,lng,demand\nYard,52.52,13.405,\nA,52.53,13.2,4\nB,52.39,13.06,7\nC,52.68,13.59,2.5\n") });
    await page.waitForFunction(() => /\skm/.test(document.querySelector("#panel [role=status]").textContent));
    const csv = await within(page, "[role=status]").textContent(), times = await hoursDropped(page);
    await tabTo(page, "svg.map");
    for (const key of ["ArrowRight", "Enter", "ArrowUp", "ArrowUp", "Enter", "ArrowLeft", "ArrowLeft", "Enter", "Enter", "Backspace"]) await page.keyboard.press(key);
    await page.waitForFunction(() => /^Tours through 6 customers/.test(document.querySelector("#panel caption")?.textContent));
    await tabTo(page, "input[type=radio]");
    const first = await shown();
    await page.keyboard.press("ArrowUp");
    const told = await within(page, "[role=status]").textContent();
    return { told, opened, csv, times, width, first, then: await shown(), customers: await within(page, "circle").count(), tours: await ways.count(), rows: await within(page, "tbody tr").count() };
  },
  async tinystories(page) {
    const written = () => within(page, "output").textContent(), seed = within(page, "label:has-text('seed') input");
    await page.waitForFunction(() => / pieces in /.test(document.querySelector("#panel [role=status]").textContent));
    const stories = [await written()], seeds = [await seed.inputValue()];
    const enter = async () => {
      await within(page, "textarea").press("Enter");
      await page.waitForFunction(() => / pieces in /.test(document.querySelector("#panel [role=status]").textContent));
      return written();
    };
    const further = page.url().startsWith("file:") ? 10 : 2;  // a server's stories take its processor seconds
    for (let count = 0; count < further; count++) {
      stories.push(await enter());
      seeds.push(await seed.inputValue());
    }
    const told = await continued(page, "Tell another"), aloud = page.getByRole("button", { name: /Read aloud|Stop reading/ });
    if (!await aloud.isVisible()) return { ...told, opened: stories[0], stories, seeds, aloud: null };
    await aloud.click();
    const reading = await aloud.textContent(), spoken = await page.evaluate(() => window.spoken.join(""));
    const next = await enter(), followed = await page.evaluate(() => window.spoken.join("")) == spoken + next;
    await aloud.click();
    return { ...told, opened: stories[0], stories, seeds, aloud: { reading, spoken, followed, afterwards: await aloud.textContent() } };
  },
  bep: async page => await within(page, "details textarea").count() ? filled(page) : continued(page),
  async crypto(page) {
    const shown = await within(page, "textarea").inputValue();  // the example
    await tabTo(page, "button", "Simulate candles");
    await page.keyboard.press("Enter");
    await page.waitForFunction(shown => document.querySelector("#panel textarea").value != shown, shown);
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
    const many = Array.from({ length: 40 }, (_, i) => ({ ...files[i % 3], name: i ? `${i}.png` : '=1,"1.png' }));
    await within(page, "input[type=file]").setInputFiles(many);  // more than a request takes
    await page.waitForFunction(() => document.querySelectorAll("#panel tbody tr").length == 43);
    const saving = page.waitForEvent("download"), chunks = [];
    await within(page, "button").filter({ hasText: "Save as CSV" }).click();
    for await (const chunk of await (await saving).createReadStream()) chunks.push(chunk);
    await tabTo(page, "button", "Draw digits").catch(() => {});  // from the end of the page to its beginning
    await tabTo(page, "button", "Compare");
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => document.querySelector("#panel p:not([role]):not(.note)").textContent);
    const voted = await votedOn(page);
    return { told: await within(page, "[role=status]").textContent(), voted, drawn, rows: scores.length, scores: scores.map(Number), head, saved: chunks.join(""), answer: await within(page, "> p:not([role]):not(.note)").textContent() };
  },
  async attributes(page) {  // a model of digits by two attributes
    await within(page, "tbody tr").nth(7).waitFor();
    const ranked = async () => [await within(page, "caption").textContent(), ...await within(page, "tbody tr td:nth-child(3)").allTextContents()];
    const before = await ranked();
    await tabTo(page, "select");
    await page.keyboard.press("ArrowDown");
    return { before, after: await ranked(), told: await within(page, "[role=status]").textContent() };
  },
};

// Votes three times for the first image of the pair shown; returns what is said then, the rows and their caption; null where nobody can vote.
async function votedOn(page) {
  const vote = within(page, "button").filter({ hasText: /^Vote$/ });
  if (!await vote.count()) return null;
  await vote.focus();
  await page.keyboard.press("Enter");
  for (let votes = 0; votes < 3; votes++) {
    await page.waitForFunction(votes => document.querySelector("#panel [role=status]").textContent.startsWith(`${votes} votes`), votes);
    await within(page, "button").filter({ hasText: "The first" }).focus();
    await page.keyboard.press("Enter");
  }
  await page.waitForFunction(() => document.querySelector("#panel [role=status]").textContent.startsWith("3 votes"));
  const found = { told: await within(page, "[role=status]").textContent(), rows: await within(page, "tbody tr").count(), caption: await within(page, "caption").textContent(), pictures: await within(page, "img.voted").count() };
  await within(page, "button").filter({ hasText: "Back to the model" }).click();
  return { ...found, back: await within(page, "caption").textContent() };
}

// Drops a CSV with opening hours on the map, and later one without; returns who is left out and the times of each, or why there are none.
async function hoursDropped(page) {
  const found = [], rows = ["Yard,52.52,13.405,,7:00,18:00,,", "Anna,52.5,13.45,3,8:00,9:00,10,", "Bert,52.55,13.3,4,9:00,12:00,10,0.1", "Dora,52.56,13.5,5,14:00,16:00,5,"];
  const without = rows.map(row => row.split(",").slice(0, 4).join(","));
  for (const [name, lines] of [["hours.csv", ["name,lat,lng,demand,open,close,service,prize", ...rows]], ["plain.csv", ["name,lat,lng,demand", ...without.with(0, "Yard,52.52,13.405,")]]]) {
    const files = await page.evaluateHandle(([name, text]) => {
      const dropped = new DataTransfer();
      dropped.items.add(new File([text], name, { type: "text/csv" }));
      return dropped;
    }, [name, lines.join("\n")]);
    await within(page, "[role=status]").evaluate(status => { status.textContent = ""; });
    await within(page, "svg.map").dispatchEvent("drop", { dataTransfer: files });
    await page.waitForFunction(() => /model: .*km/.test(document.querySelector("#panel [role=status]").textContent) || document.querySelector("#panel [role=alert]").textContent);
    const refused = await within(page, "[role=alert]").textContent();
    found.push(refused || await within(page, ".wide").last().locator("p, tbody tr").allTextContents());
  }
  return found;
}

const isContinued = page => page.waitForFunction(() => / pieces in /.test(document.querySelector("#panel [role=status]").textContent) || document.querySelector("#panel [role=alert]").textContent);

// Takes suggestions by the key Tab, and closes their list.
async function suggested(page) {
  const option = within(page, "[role=option][aria-selected=true]"), value = () => within(page, "textarea").inputValue();
  await option.waitFor();
  const [text, source] = [await option.locator("span").textContent(), await option.locator("small").textContent()];
  await page.keyboard.press("Tab");
  const taken = await value();
  await option.waitFor();
  const marked = await within(page, "textarea").getAttribute("aria-activedescendant");
  await page.keyboard.press("ArrowDown");
  const next = await within(page, "textarea").getAttribute("aria-activedescendant");
  await page.keyboard.press("Escape");
  return { text, source, taken, marked, next, open: await option.count() };
}

async function continued(page) {
  await isContinued(page);
  const opened = await within(page, "output").textContent(), seed = within(page, "input[type=number]").last();
  await tabTo(page, "textarea");
  await page.keyboard.press("Control+A");
  await page.keyboard.type("The cat");
  const suggestion = await within(page, "[role=listbox]").count() ? await suggested(page) : null;
  await tabTo(page, "button.main");
  const seeds = [await seed.inputValue()];
  await page.keyboard.press("Enter");
  await isContinued(page);
  seeds.push(await seed.inputValue());
  const told = await within(page, "output").textContent();
  if (!await within(page, "details").count()) return { opened, told, suggestion, seeds };
  await tabTo(page, "summary");
  await page.keyboard.press("Enter");
  await tabTo(page, "button", "Boot");
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => document.querySelector("#panel pre").textContent.endsWith("\n> "));
  const typed = await within(page, "details input").inputValue();
  return { opened, told, seeds, typed, chip: await within(page, "pre").textContent() };
}

// Fills a field of a form with clauses, by the keyboard.
async function filled(page) {
  const field = within(page, "textarea[name=clashDetection]"), option = within(page, "[role=option][aria-selected=true]");
  const said = async () => (await within(page, "[role=status]").textContent()).trim();
  await tabTo(page, "textarea");
  await page.waitForFunction(() => document.querySelector("#panel [role=status]").textContent.includes("nothing of yours fits"));
  const silent = await said();
  await within(page, "summary").filter({ hasText: "Coordination" }).press("Enter");
  await field.focus();
  await page.keyboard.type("The cat");
  await option.waitFor();
  const [text, source] = [await option.locator("span").textContent(), await option.locator("small").textContent()];
  await page.keyboard.press("Tab");
  const taken = await field.inputValue();
  await page.keyboard.press("Escape");
  const open = await option.count(), own = within(page, "textarea[name=projectScope]");
  let late, asked = new Promise(resolve => page.route("**/suggest", route => { late = () => route.continue(); resolve(); }, { times: 1 }));
  await field.press("End");
  await page.keyboard.type(" ");
  await asked;
  await within(page, "input[type=file]").setInputFiles({ name: "no.docx", mimeType: "text/plain", buffer: Buffer.from("none") });
  await page.waitForFunction(() => document.querySelector("#panel [role=alert]").textContent);
  const answered = page.waitForResponse("**/suggest");
  late();  // a suggestion that comes after an error leaves it standing
  await (await answered).finished();
  await page.evaluate(() => new Promise(resolve => setTimeout(resolve, 50)));
  const refused = await within(page, "[role=alert]").textContent();
  await within(page, "input[type=file]").setInputFiles(process.env.PLAN_TEMPLATE);
  await page.waitForFunction(() => document.querySelector("#panel [role=status]").textContent.includes("fields read"));
  const read = [await said(), await own.inputValue()], saving = page.waitForEvent("download"), chunks = [];
  await page.getByRole("button", { name: "Download as Word" }).press("Enter");
  for await (const chunk of await (await saving).createReadStream()) chunks.push(chunk);
  const filled = Buffer.concat(chunks).toString("base64"), fields = await within(page, "textarea").count();
  await page.waitForFunction(() => !document.querySelector("#panel [role=status]").textContent.includes("fields read"));
  const left = await said(), known = page.waitForResponse(/\/sessions$/);
  await field.fill("");
  await field.press("T");
  const { session } = await (await known).json();
  await option.waitFor();
  await page.evaluate(name => fetch(`sessions/${name}`, { method: "DELETE" }), session);
  await page.keyboard.press("Escape");
  const again = page.waitForResponse(/\/suggest$/);
  await page.keyboard.type("h");
  await again;
  const remembered = await option.locator("span").textContent({ timeout: 5000 }).catch(() => "");
  return { silent, text, source, taken, read, filled, left, refused, fields, open, remembered };
}

async function chosen(page, run) {
  if (!run) return;
  await tabTo(page, "nav button", run);
  await page.keyboard.press("Enter");
}

// A browser with a voice, which Chromium without a screen lacks.
function voiced() {
  const speech = { speaking: false, getVoices: () => [{ name: "a voice" }], speak: said => { window.spoken.push(said.text); speech.speaking = true; }, cancel: () => { speech.speaking = false; } };
  window.spoken = [];
  Object.defineProperty(window, "speechSynthesis", { value: speech });
}

// Puts into `result` how wide the page is and what keeps people from reading it, and takes a picture.
async function lookedAt(page, name, view, result) {
  result.widths[view] = await page.evaluate(() => document.documentElement.scrollWidth);
  await pictured(page, { path: `${screenshots}-${name}-${view}.png`, fullPage: true });
  result.faults[view] = await faults(page);
}

const browser = await launched(executablePath), found = {};
for (const word of wanted) {
  const [name, ...address] = word.split("="), [place, run] = address.join("=").split("#"), result = found[name] = { unexpected: [], faults: {}, widths: {} };
  const { light, dark, telephone } = VIEWS;
  for (const [view, options] of Object.entries({ light, telephone })) {
    const context = await browser.newContext({ ...options, bypassCSP: view != "light", offline: place.startsWith("file:") });
    if (view == "telephone") await context.addInitScript(voiced);  // the last one, whose results stay
    const page = await context.newPage();
    watch(page, place.startsWith("file:") ? /^(file|data):/ : new RegExp(`^(data:|${place})`), result.unexpected);
    await page.goto(place);
    await page.locator("#panel > *").first().waitFor();
    await chosen(page, run);
    result.played = await PLAYED[name](page);
    (result.maps ??= {})[view] = result.played.width;
    result.alert = (await within(page, "[role=alert]").allTextContents()).join("");
    if (await page.locator("#proof").count()) {
      await page.locator("#proof[data-difference]").waitFor();
      result.proof = { ...await page.locator("#proof").evaluate(proof => ({ ...proof.dataset })), said: await page.locator("#proof").textContent() };
    }
    await page.waitForTimeout(name == "cvrp" ? 1200 : 0);  // tours grow
    await lookedAt(page, name, view, result);
    if (view == "light") {  // what was played stays, in other colours
      await page.emulateMedia({ colorScheme: dark.colorScheme });
      await lookedAt(page, name, "dark", result);
    }
    await context.close();
  }
}
console.log(JSON.stringify(found));
await browser.close();
