// The server's page at /: a panel for each run.

const WORKLOADS = {
  cvrp: { heading: "Plan routes", panel: routesPanel, about: () => ({ rivals: true, milliseconds: true }) },
  tinystories: { heading: "Tell a story", panel: textPanel, about: ({ prompt }) => ({
    said: "By the chip's own integer code: the same tokens as on the chip.", always: { arithmetic: "integer" },
    stories: true, unit: "tokens", prompt, longest_prompt: 1000, settings: { length: 200, temperature: 0.6, top_k: 40, seed: 0 } }) },
  bep: { heading: "Complete a form", panel: formPanel, about: ({ form }) => ({
    said: "Below each field are clauses of the firm's documents, with their sources, if any fit. Tab takes one; type over placeholders such as <name>.",
    form, longest_prompt: 10000, settings: { length: 200, temperature: 0.5, seed: 0 } }) },
  crypto: { heading: "Judge candles", panel: signalsPanel, about: model => model },
  lmol: { heading: "Rank images", panel: imagesPanel, about: model => model },
};

// What the panel shows, in a sentence.
const SAID = {
  cvrp: "The model and other solvers plan tours through the same customers for vehicles of limited capacity; the shortest wins.",
  tinystories: "The model continues a story, a piece of a word at a time.",
  bep: "A plan for building information management, from clauses of plans that the firm has written.",
  crypto: "The model says after each candle whether the next move is up, down or too small to trade. This is an exercise, not advice.",
  lmol: "The model compares two images at a time; the scores of many come from such comparisons.",
};

let token = null;  // where the server requires one

async function request(path, content) {
  const headers = { ...(content ? { "Content-Type": "application/json" } : {}), ...(token ? { Authorization: `Bearer ${token}` } : {}) };
  const answer = await fetch(path, { method: content ? "POST" : "GET", headers, body: content && JSON.stringify(content) });
  if (answer.ok) return answer;
  const said = await answer.text();
  let reason = said;
  try {
    const { error, outputs } = JSON.parse(said);
    reason = error ?? outputs?.find(each => each.error)?.error ?? said;  // outputs: no input was usable
  } catch { /* not JSON: shown as it is */ }
  throw Object.assign(new Error(`the server answers ${answer.status}: ${reason}`), { status: answer.status });
}

const exchanged = async (path, content) => (await request(path, content)).json();

// `about.always`: settings of every request.
function backendOf(name, about) {
  const path = `runs/${name.split("/").map(encodeURIComponent).join("/")}`;
  let session = null;  // of the plan being written
  const answers = async (inputs, settings = {}) => (await exchanged(`${path}/predict`, { inputs, settings })).outputs;
  return {
    predict: async (input, settings) => (await answers([input], settings))[0],
    rivals: (input, milliseconds) => exchanged(`${path}/rivals`, { input, milliseconds }),
    suggest: about.form && (async ({ field, prompt }) =>
      (await exchanged("suggest", { model: name, field_type: field, partial_text: prompt, ...(session ? { session } : {}) })).suggestions),
    plan: async text => {
      const begun = () => exchanged("sessions", { model: name, text });
      const extended = () => exchanged(`sessions/${session}/text`, { model: name, text }).catch(error => {
        if (error.status != 404) throw error;
        return begun();  // the server has forgotten the session
      });
      ({ session } = await (session ? extended() : begun()));
    },
    document: content => exchanged(`${path}/document`, content),
    stream: (input, settings) => streamed(`${path}/stream`, { input, settings: { ...about.always, ...settings } }),

    // One input for each of the last `count` candles, ending with it.
    signals: async ({ coin, candles }, count) => {
      const total = candles.time.length, number = Math.min(count, total - about.candles_needed + 1);
      if (number < 1) return { error: `there are ${total} candles; give ${about.candles_needed} or more` };
      const inputs = Array.from({ length: number }, (_, i) => {
        const end = total - number + 1 + i;
        const last = Object.entries(candles).map(([column, values]) => [column, values.slice(Math.max(end - about.candles_used, 0), end)]);
        return { coin, candles: Object.fromEntries(last) };
      });
      const found = await answers(inputs, { now: "newest" });
      return found.find(each => each.error) ?? found;
    },
  };
}

// Yields the text in a stream of server-sent events.
async function* streamed(path, content) {
  const reader = (await request(path, content)).body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  try {
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      const events = (held + part.value).split(/\r?\n\r?\n/);
      held = events.pop();
      for (const event of events) {
        const data = event.split(/\r?\n/).filter(line => line.startsWith("data:")).map(line => line.slice(5).trimStart()).join("\n");
        const { error, done, text } = data ? JSON.parse(data) : {};
        if (error) throw new Error(error);
        if (done) return;
        if (text) yield text;
      }
    }
    throw new Error("the server stopped before the text was complete");
  } finally {
    await reader.cancel();
  }
}

function show(run, chosen) {
  const { heading, panel, about } = WORKLOADS[run.workload], place = document.getElementById("panel"), facts = about(run.model ?? {});
  document.querySelectorAll("nav button").forEach(each => each.removeAttribute("aria-current"));
  chosen.setAttribute("aria-current", "true");
  place.replaceChildren(element("h2", { class: "tool", id: "heading" }, heading));
  const size = `${run.name}: ${run.model.parameters.toLocaleString("en")} parameters`;
  for (const said of [SAID[run.workload], facts.said, run.verdict, run.unjudged, size]) if (said) place.append(element("p", { class: "note" }, said));
  panel(place, backendOf(run.name, facts), facts);
}

function askForToken() {
  const input = element("input", { type: "password", autocomplete: "off", required: true });
  document.getElementById("panel").replaceChildren(element("form", { submit: event => {
    event.preventDefault();
    token = input.value;
    main();
  } }, labelled("token", input), element("button", { class: "main" }, "Continue")));
}

async function main() {
  const state = document.getElementById("state"), nav = document.getElementById("runs"), place = document.getElementById("panel");
  try {
    const runs = (await exchanged("runs")).filter(run => run.workload in WORKLOADS);
    nav.replaceChildren(...runs.map(run => button(element("span", {}, `${WORKLOADS[run.workload].heading} `, element("small", {}, run.name)), event => show(run, event.currentTarget))));
    state.textContent = runs.length ? "" : "this server has no model with a panel";
    place.replaceChildren();
    if (runs.length) show(runs[0], nav.firstChild);
  } catch (error) {
    state.textContent = error.message;
    if (error.status == 401) askForToken();
  }
}

main();
