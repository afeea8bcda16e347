// A panel that is a form: all fields by group, each with clauses of the firm's documents below it while a person types.

// `about.form`: {field: {label, group, question}}; `backend.plan` sends the plan to the server, which reads it as it grows.
function formPanel(place, backend, about) {
  const report = reporting(), areas = {}, groups = {};
  let read = "";  // the text of the plan that the server knows
  let reports = 0;  // on actions of the user, which a later suggestion must not replace

  const ask = compute => {
    reports++;
    return asked(report, compute).finally(() => { reports++; });
  };

  // The plan without a field, whose own text is sent as the prompt.
  const planWithout = name => Object.entries(areas).filter(([other, area]) => other != name && area.value.trim())
    .map(([other, area]) => `# ${about.form[other].label}\n\n${area.value.trim()}\n\n`).join("");

  async function suggest(name) {
    const before = planWithout(name), reported = reports;
    const known = async () => {
      await backend.plan(before);
      read = before;
    };
    const found = () => backend.suggest({ field: name, prompt: areas[name].value });
    if (before != read) await known();
    const ways = await found().catch(async error => {
      if (error.status != 404) throw error;
      await known();  // the server has forgotten the session
      return found();
    });
    if (reported == reports) report.say(ways.length ? "" : `${about.form[name].label}: nothing of yours fits`);
    return ways;
  }

  for (const [name, { group, question }] of Object.entries(about.form)) {
    const area = areas[name] = element("textarea", { rows: 2, maxlength: about.longest_prompt, name });
    const proposed = proposals(area, () => suggest(name), true);
    area.addEventListener("focus", () => {
      writing.hidden = false;
      proposed.renew();
    });
    const write = button("Continue", () => ask(async () => {
      let written = "";
      report.say("the model writes");
      for await (const piece of backend.stream({ field: name, prompt: area.value }, about.settings)) written += piece;
      shown.textContent = written;
      report.say("");
    }), { "aria-label": `Continue: ${about.form[name].label}` });
    const shown = element("output", { class: "note", "aria-label": `written by the model: ${about.form[name].label}` });
    const writing = element("p", { class: "note", hidden: true }, write, " what the model would write, from no document: ", shown);
    (groups[group] ??= []).push(element("div", { class: "field" },
      labelled(`${about.form[name].label}: ${question}`, area, { class: "whole" }), ...proposed.parts, writing));
  }
  const parts = Object.entries(groups).map(([group, fields], number) =>
    element("details", { open: !number }, element("summary", {}, group), ...fields));
  let template = "";  // a Word document in base64
  const upload = element("input", { type: "file", accept: ".docx,.docm,.dotx,.dotm", change: () => ask(async () => {
    const [file] = upload.files;
    if (!file) return;
    const bytes = new Uint8Array(await file.arrayBuffer());
    const held = btoa(Array.from(bytes, byte => String.fromCharCode(byte)).join(""));
    const { fields } = await backend.document({ template: held });
    template = held;
    const read = Object.entries(fields).filter(([name]) => !areas[name].value.trim());
    for (const [name, text] of read) areas[name].value = text;
    report.say(`${file.name}: ${read.length} fields read; the download fills in the others`);
  }) });
  const keep = button("Download the plan", () => save("plan.md", "text/markdown", planWithout("")));
  const fill = button("Download as Word", () => ask(async () => {
    const { document, left } = await backend.document({ template, plan: planWithout("") });
    save("plan.docx", WORD, Uint8Array.from(atob(document), sign => sign.charCodeAt(0)));
    report.say(left.length ? `the template has no place for: ${left.join(", ")}` : "");
  }));
  place.append(...report.parts, ...parts, labelled("a Word document to read and fill in", upload), keep, fill);
}

const WORD = "application/vnd.openxmlformats-officedocument.wordprocessingml.document";

function save(name, type, content) {
  const link = element("a", { href: URL.createObjectURL(new Blob([content], { type })), download: name });
  link.click();
  URL.revokeObjectURL(link.href);
}
