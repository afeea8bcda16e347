// Word's task pane: clauses for the cursor's place in the open document.

const PAUSE = 400;  // milliseconds after the last key, when clauses are looked up
const LONGEST = 400000, LONGEST_BEGUN = 10000;  // characters that the server takes

let session = null, read = null, turn = 0, waiting = 0;
const state = document.getElementById("state"), wrong = document.getElementById("wrong"), list = document.getElementById("clauses");

async function exchanged(path, content) {
  const answer = await fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(content) });
  const found = await answer.json();
  if (!answer.ok) throw Object.assign(new Error(`the server answers ${answer.status}: ${found.error}`), { status: answer.status });
  return found;
}

// The part of the cursor's paragraph before it, as a range.
function begunRange(context) {
  const cursor = context.document.getSelection().getRange("Start");
  return cursor.paragraphs.getFirst().getRange("Start").expandTo(cursor);
}

// The paragraphs before the cursor's, headings marked with #; the last heading; and the cursor's own paragraph up to the cursor.
async function placeOf(context) {
  const begun = begunRange(context), paragraphs = context.document.body.getRange("Start").expandTo(begun).paragraphs;
  begun.load("text");
  paragraphs.load("items/text,items/styleBuiltIn");
  await context.sync();
  const before = paragraphs.items.slice(0, -1), headings = before.filter(isHeading);
  const text = before.map(each => isHeading(each) ? `\n# ${each.text}\n` : each.text).join("\n");
  return { text: text.slice(-LONGEST), heading: headings.at(-1)?.text ?? "", begun: begun.text.slice(-LONGEST_BEGUN) };
}

const isHeading = paragraph => /^(Heading|Title)/.test(paragraph.styleBuiltIn);

async function tell(text) {
  if (session && text == read) return;
  try {
    ({ session } = await exchanged(session ? `sessions/${session}/text` : "sessions", { text }));
  } catch (error) {
    if (error.status != 404) throw error;
    ({ session } = await exchanged("sessions", { text }));  // the server has forgotten the session
  }
  read = text;
}

async function look() {
  const mine = ++turn;
  try {
    const { text, heading, begun } = await Word.run(placeOf);
    await tell(text);
    const { suggestions } = await exchanged("suggest", { field_type: heading.slice(0, 200), partial_text: begun, session });
    if (mine != turn) return;  // the cursor has moved since
    wrong.textContent = "";
    state.textContent = `${heading || "without a heading"}: ${suggestions.length ? "click one to insert it" : "nothing of yours fits"}`;
    list.replaceChildren(...suggestions.map(way => element("li", {}, button(way.text, () => take(way, begun)), element("small", {}, sourceOf(way)))));
  } catch (error) {
    if (error.status == 404) session = null;  // the server has forgotten the session
    wrong.textContent = error.message;
  }
}

// Writes a clause at the cursor; it may replace the end of what was typed.
async function take(way, expected) {
  try {
    await Word.run(async context => {
      const begun = begunRange(context);
      begun.load("text");
      await context.sync();
      if (!begun.text.endsWith(expected)) return;  // the document has changed: look again
      const kept = begun.text.slice(0, begun.text.length - way.replaces);
      const written = way.replaces ? begun.insertText(kept + way.text, "Replace") : context.document.getSelection().insertText(way.text, "End");
      written.select("End");
      await context.sync();
    });
  } catch (error) {
    wrong.textContent = error.message;
  }
  look();
}

Office.onReady(({ host }) => {
  if (host != Office.HostType.Word) {
    state.textContent = "Open this page in Word: Insert, My Add-ins.";
    return;
  }
  Office.context.document.addHandlerAsync(Office.EventType.DocumentSelectionChanged, () => {
    clearTimeout(waiting);
    waiting = setTimeout(look, PAUSE);
  });
  look();
});
