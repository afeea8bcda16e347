// Plays Word for its task pane, with a document in memory, and prints what came of it as JSON:
//
//     node word.mjs CHROMIUM SCREENSHOTS ADDRESS
//
// Office.js, which Word's own host would run, is replaced by the part of it that the pane uses.
import { VIEWS, faults, launched, pictured, watch } from "./looking.mjs";

const [executablePath, screenshots, address] = process.argv.slice(2);

function office() {
  const paragraphs = [["Plan", "Title"], ["Clash detection", "Heading1"], ["The cat", "Normal"]].map(([text, styleBuiltIn]) => ({ text, styleBuiltIn }));
  let cursor = { p: 2, o: 7 }, moved = () => {};
  const later = (a, b) => a.p - b.p || a.o - b.o;
  class Range {
    constructor(a, b) { Object.assign(this, { a, b }); }
    load() {}
    get text() { return this.a.p == this.b.p ? paragraphs[this.a.p].text.slice(this.a.o, this.b.o) : undefined; }
    getRange(where) { return where == "Start" ? new Range(this.a, this.a) : new Range(this.b, this.b); }
    expandTo(other) { return new Range(later(this.a, other.a) < 0 ? this.a : other.a, later(this.b, other.b) > 0 ? this.b : other.b); }
    get paragraphs() {
      const items = paragraphs.slice(this.a.p, this.b.p + 1), own = { p: this.a.p, o: 0 };
      return { items, load() {}, getFirst: () => new Range(own, { p: own.p, o: paragraphs[own.p].text.length }) };
    }
    insertText(text, where) {
      const { p } = this.b, begin = where == "Replace" ? this.a.o : this.b.o, whole = paragraphs[p].text;
      paragraphs[p].text = whole.slice(0, begin) + text + whole.slice(this.b.o);
      return new Range({ p, o: begin }, { p, o: begin + text.length });
    }
    select(where) { cursor = where == "End" ? this.b : this.a; moved(); }
  }
  const body = new Range({ p: 0, o: 0 }, { p: 2, o: 7 });
  window.Word = { run: act => act({ document: { body, getSelection: () => new Range(cursor, cursor) }, sync: async () => {} }) };
  window.Office = {
    HostType: { Word: "Word" }, EventType: { DocumentSelectionChanged: "moved" },
    context: { document: { addHandlerAsync: (kind, act) => { moved = act; } } },
    onReady: act => act({ host: "Word" }),
  };
  window.played = { paragraphs, put: (p, o) => { cursor = { p, o }; moved(); } };
}

const browser = await launched(executablePath), found = { unexpected: [], faults: {} };
for (const [view, options] of Object.entries(VIEWS)) {
  const context = await browser.newContext({ ...options, ignoreHTTPSErrors: true, bypassCSP: view != "light" }), page = await context.newPage();
  await page.route("https://appsforoffice.microsoft.com/**", route => route.fulfill({ contentType: "text/javascript", body: `(${office})()` }));
  watch(page, new RegExp(`^(${address}|https://appsforoffice.microsoft.com/lib/1/hosted/office.js$)`), found.unexpected);
  await page.goto(`${address}word.html`);
  await page.locator("#clauses button").first().waitFor();
  if (view != "light") {
    found.faults[view] = await faults(page);
    await pictured(page, { path: `${screenshots}-${view}.png` });
    continue;
  }
  found.said = await page.locator("#state").textContent();
  found.source = await page.locator("#clauses small").first().textContent();
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => played.paragraphs[2].text.endsWith("."));
  found.written = await page.evaluate(() => played.paragraphs.map(each => each.text));
  await page.evaluate(() => { played.paragraphs[1].text = "Catering"; played.put(2, 0); });
  await page.waitForFunction(() => document.getElementById("state").textContent.startsWith("Catering"));
  found.silent = await page.locator("#state").textContent();
  found.wrong = await page.locator("#wrong").textContent();
}
await browser.close();
console.log(JSON.stringify(found));
