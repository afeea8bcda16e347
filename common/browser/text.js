// A panel for models that continue a text.

const FIELD_NAMES = { length: "length", temperature: "temperature", top_k: "top k (0: all)", seed: "seed" };

// `about`: settings with their defaults, `unit` of lengths, the initial `prompt`;
// `stories`: each click tells another, which can be read aloud. The panel opens with its prompt continued.
function textPanel(place, backend, about) {
  const report = reporting(), written = element("output", { class: "written", "aria-label": "continued text", "aria-live": "off" });
  const prompt = Object.assign(element("textarea", { rows: 3, maxlength: about.longest_prompt }), { value: about.prompt });
  const inputs = Object.fromEntries(Object.entries(about.settings).map(([name, value]) =>
    [name, numberField(value, { min: 0, step: name == "temperature" ? 0.05 : 1 })]));
  const controls = Object.entries(inputs).map(([name, input]) =>
    labelled(name == "length" ? `length, in ${about.unit}` : FIELD_NAMES[name] ?? name, input));
  const go = element("button", { class: "main" }, about.stories ? "Tell another" : "Continue"), stop = button("Stop", () => { running = null; }, { disabled: true });
  const aloud = about.stories && window.speechSynthesis && reader(() => written.textContent);
  const proposed = backend.suggest && proposals(prompt, () => backend.suggest({ prompt: prompt.value }));
  let running = null, seedOfLast = about.stories && about.settings.seed == 0 ? inputs.seed.value : null;  // 0: a new story

  async function run(event) {
    event?.preventDefault();
    const heard = aloud?.silence();
    // A typed seed counts once; later texts get new ones, small enough for a chip's /seed, too.
    if (inputs.seed.value === seedOfLast) inputs.seed.value = crypto.getRandomValues(new Uint32Array(1))[0] % 100_000_000;
    seedOfLast = inputs.seed.value;
    const settings = Object.fromEntries(Object.entries(inputs).map(([name, input]) => [name, Number(input.value)]));
    const input = { prompt: prompt.value }, began = performance.now();
    const mine = running = {};
    written.replaceChildren(element("mark", {}, prompt.value));
    stop.disabled = false;
    let pieces = 0;
    await asked(report, async () => {
      report.say("reading the prompt");
      for await (const piece of backend.stream(input, settings)) {
        if (running != mine) break;
        written.append(piece);
        // Lets the browser draw the page and handle keys.
        if (++pieces % 8 == 1) await new Promise(resolve => setTimeout(resolve));
      }
      if (running && running != mine) return;  // the next story has begun
      const seconds = (performance.now() - began) / 1000;
      report.say(`complete: ${pieces} pieces in ${shortNumber(seconds)} s`);
      if (heard) aloud.read();
    });
    if (running == mine) running = null;
    stop.disabled = running === null;
  }

  if (about.stories) prompt.addEventListener("keydown", event => { if (event.key == "Enter" && !event.shiftKey) run(event); });
  place.append(
    element("form", { submit: run },
      labelled("prompt", prompt, { class: "whole" }), ...(proposed?.parts ?? []),
      ...controls, go, stop, ...(aloud ? [aloud.button] : [])),
    written, ...report.parts);
  setTimeout(run);  // after the rest of the page has opened
}

// A button that reads a text aloud by the browser's speech synthesis, sentence by sentence; hidden where there are no voices.
function reader(text) {
  const speech = window.speechSynthesis;
  const toggle = button("Read aloud", () => speech.speaking ? silence() : read(), { hidden: true });
  const silence = () => {
    const spoke = speech.speaking;
    speech.cancel();
    toggle.textContent = "Read aloud";
    return spoke;
  };

  function read() {
    const sentences = (text().match(/[^.!?]+[.!?]*["”]?/g) ?? []).map(each => new SpeechSynthesisUtterance(each));
    for (const each of sentences) speech.speak(Object.assign(each, { lang: "en" }));
    if (sentences.length) Object.assign(sentences.at(-1), { onend: silence, onerror: silence });
    toggle.textContent = sentences.length ? "Stop reading" : "Read aloud";
  }

  const show = () => { toggle.hidden = !speech.getVoices().length; };
  speech.addEventListener?.("voiceschanged", show);
  addEventListener("pagehide", silence);
  show();
  return { button: toggle, silence, read };
}

// The source of a clause, and its number of projects; one without a document is the model's own.
function sourceOf({ document: name, line, heading, count, header }) {
  if (!name) return "written by the model";
  const where = `${name}, line ${line}: ${heading || "no heading"}${header ? ` (${header})` : ""}`;
  return count > 1 ? `in ${count} projects; ${where}` : where;
}

// A list of continuations below a text field, renewed while a person types. Tab takes the marked one, the arrows mark
// another, and Escape closes the list until the next key; before any typing, Tab leaves the field as usual.
// `slots`: placeholders of the clause taken, such as <name>, are selected one by one, to be typed over.
function proposals(field, ask, slots = false) {
  const id = `proposals${proposals.count = (proposals.count ?? -1) + 1 || ""}`, option = id.replace("proposals", "proposal");
  const list = element("ul", { role: "listbox", id, class: "proposals", "aria-label": "suggestions", hidden: true });
  const hint = element("p", { class: "note proposals-hint", hidden: true }, "Tab takes the marked suggestion, the arrow keys mark another, Escape closes the list.");
  let found = [], marked = 0, turn = 0, waiting = 0, typed = false;

  function show(ways) {
    [found, marked] = [ways, 0];
    list.replaceChildren(...ways.map((way, number) => element("li", { role: "option", id: `${option}-${number}`, pointerdown: event => {
      event.preventDefault();  // the focus stays in the field
      take(number);
    } }, element("span", {}, way.text), element("small", {}, sourceOf(way)))));
    list.hidden = hint.hidden = !ways.length;
    mark(0);
  }

  function mark(number) {
    marked = (number + found.length) % found.length;
    [...list.children].forEach((option, i) => option.setAttribute("aria-selected", i == marked));
    if (found.length) field.setAttribute("aria-activedescendant", `${option}-${marked}`);
    else field.removeAttribute("aria-activedescendant");
  }

  function take(number) {
    field.setRangeText(found[number].text, field.value.length - (found[number].replaces ?? 0), field.value.length, "end");
    field.focus();
    typed = true;
    const slot = slots && field.value.match(/<[a-z]+>/);
    if (slot) field.setSelectionRange(slot.index, slot.index + slot[0].length);
    renew();
  }

  function close() {
    clearTimeout(waiting);
    turn++;
    typed = false;
    show([]);
  }

  async function renew() {
    const mine = ++turn;
    try {
      const ways = (slots || field.value) && field.value.length <= field.maxLength ? await ask() : [];
      if (mine == turn) show(ways);  // else the text has changed since
    } catch {
      if (mine == turn) close();  // "Continue" says what is wrong
    }
  }

  const act = {
    Tab: () => take(marked),
    ArrowDown: () => mark(marked + 1),
    ArrowUp: () => mark(marked - 1),
    Escape: close,
  };
  for (const [name, value] of Object.entries({ "aria-autocomplete": "list", "aria-controls": id })) field.setAttribute(name, value);
  field.addEventListener("input", () => {
    typed = true;
    turn++;  // pending suggestions are for another text
    show([]);
    clearTimeout(waiting);
    waiting = setTimeout(renew, 150);
  });
  field.addEventListener("keydown", event => {
    if (!typed || list.hidden || event.shiftKey || event.ctrlKey || event.altKey || event.metaKey || !(event.key in act)) return;
    event.preventDefault();
    act[event.key]();
  });
  field.addEventListener("blur", () => {
    typed = false;
    if (slots) close();
  });
  if (!slots) setTimeout(renew);
  return { parts: [list, hint], renew };
}
