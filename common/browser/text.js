// A panel for models that continue a text: stories and form fields.

const FIELD_NAMES = { length: "length", temperature: "temperature", top_k: "top k (0: all)", seed: "seed" };

// `about`: settings with their defaults, `unit` of lengths, the initial `prompt`, `fields` of a form with their beginnings.
function textPanel(place, backend, about) {
  const report = reporting(), written = element("output", { class: "written", "aria-label": "continued text", "aria-live": "off" });
  const prompt = Object.assign(element("textarea", { rows: 3, maxlength: about.longest_prompt }), { value: about.prompt });
  const inputs = Object.fromEntries(Object.entries(about.settings).map(([name, value]) =>
    [name, numberField(value, { min: 0, step: name == "temperature" ? 0.05 : 1 })]));
  const controls = Object.entries(inputs).map(([name, input]) =>
    labelled(name == "length" ? `length, in ${about.unit}` : FIELD_NAMES[name] ?? name, input));
  const fields = Object.entries(about.fields ?? {});
  const field = element("select", { change: () => { prompt.value = about.fields[field.value]; } },
    ...fields.map(([name]) => element("option", {}, name)));
  const go = element("button", { class: "main" }, "Continue"), stop = button("Stop", () => { running = null; }, { disabled: true });
  let running = null;

  async function run(event) {
    event.preventDefault();
    const settings = Object.fromEntries(Object.entries(inputs).map(([name, input]) => [name, Number(input.value)]));
    const input = { ...(fields.length ? { field: field.value } : {}), prompt: prompt.value }, began = performance.now();
    const mine = running = {};
    written.replaceChildren(element("mark", {}, prompt.value));
    stop.disabled = false;
    let pieces = 0;
    await asked(report, async () => {
      report.say("reading the prompt");
      for await (const piece of backend.stream(input, settings)) {
        if (running != mine) break;
        written.append(piece);
        // Lets the page be drawn and keys be handled.
        if (++pieces % 8 == 1) await new Promise(resolve => setTimeout(resolve));
      }
      const seconds = (performance.now() - began) / 1000;
      report.say(`complete: ${pieces} pieces in ${shortNumber(seconds)} s`);
    });
    if (running == mine) running = null;
    stop.disabled = running === null;
  }

  place.append(
    element("form", { submit: run },
      ...(fields.length ? [labelled("field", field)] : []),
      labelled("prompt", prompt, { class: "whole" }),
      ...controls, go, stop),
    written, ...report.parts);
}
