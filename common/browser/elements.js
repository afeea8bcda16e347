// Building blocks of panels. Text stays text: nothing here parses markup.

const SVG = "http://www.w3.org/2000/svg";
const DRAWN = new Set(["svg", "g", "path", "circle", "rect", "line", "text", "title"]);

// An element with attributes (functions listen to events of that name) and children.
function element(tag, attributes = {}, ...children) {
  const made = DRAWN.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value == "function") made.addEventListener(name, value);
    else if (value !== undefined && value !== null && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

function labelled(text, control, attributes = {}) {
  return element("label", attributes, text, control);
}

function numberField(value, attributes) {
  return Object.assign(element("input", { type: "number", ...attributes }), { value });
}

function button(text, act, attributes = {}) {
  return element("button", { type: "button", click: act, ...attributes }, text);
}

// A status line and an error line, both announced by screen readers.
function reporting() {
  const status = element("p", { role: "status", class: "note" }), alert = element("p", { role: "alert" });
  return {
    parts: [status, alert],
    say: text => { status.textContent = text; alert.textContent = ""; },
    fail: text => { alert.textContent = text; status.textContent = ""; },
  };
}

// Awaits an answer and returns it; shows an error, whether answered or thrown, and then returns undefined.
async function asked(report, compute) {
  try {
    const found = await compute();
    if (!found?.error) return found;
    report.fail(found.error);
  } catch (error) {
    report.fail(error.message);
  }
  return undefined;
}

const shortNumber = value => Number(value.toPrecision(4)).toString();

function table(caption, head, rows) {
  return element("table", {}, element("caption", {}, caption),
    element("thead", {}, element("tr", {}, ...head.map(each => element("th", { scope: "col" }, each)))),
    element("tbody", {}, ...rows.map(([first, ...others]) =>
      element("tr", {}, element("th", { scope: "row" }, first), ...others.map(each => element("td", {}, each))))));
}
