// Opens the model that the page carries, shows its panel, and proves that it computes here what PyTorch computed.

const TOLERANCE_OF_NUMBERS = 1e-4;

// {name: bytes} of files that are gzipped and in base64.
async function unpacked(files) {
  const names = Object.keys(files), contents = await Promise.all(names.map(async name => {
    const binary = atob(files[name]), bytes = new Uint8Array(binary.length);
    for (let i = 0; i < bytes.length; i++) bytes[i] = binary.charCodeAt(i);
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
  }));
  return Object.fromEntries(names.map((name, i) => [name, new Uint8Array(contents[i])]));
}

// The largest difference between numbers of two answers, relative for those above 1; Infinity where integers, texts or
// anything else expected differ.
function difference(expected, found) {
  const same = expected === found ? 0 : Infinity;
  if (typeof expected == "number" && typeof found == "number")
    return [expected, found].every(Number.isInteger) ? same : Math.abs(expected - found) / Math.max(1, Math.abs(expected));
  if (expected === null || typeof expected != "object" || found === null || typeof found != "object") return same;
  if (Array.isArray(expected) && expected.length != found.length) return Infinity;
  return Math.max(0, ...Object.entries(expected).map(([key, value]) => difference(value, found[key])));
}

async function proof(backend, expected) {
  let largest = 0;
  for (const { method, arguments: given, output } of expected) largest = Math.max(largest, difference(output, await backend[method](...given)));
  return largest;
}

async function main() {
  const began = performance.now(), said = document.getElementById("proof");
  const { config, about, expected, files } = JSON.parse(document.getElementById("model").textContent);
  const bytes = await unpacked(files);
  const place = document.getElementById("panel"), backend = await openModel(config, bytes);
  for (const panel of about.panels) window[panel](place, backend, about, bytes);
  const opened = performance.now(), largest = await proof(backend, expected), done = performance.now();
  Object.assign(said.dataset, { difference: largest, seconds: done / 1000 });  // since the page was asked for
  said.textContent = largest <= TOLERANCE_OF_NUMBERS
    ? `Opened in ${Math.round(opened - began)} ms. Its answers to ${expected.length} questions match PyTorch's` + (largest ? ` within ${largest.toExponential(1)}.` : " exactly.")
    : "This browser's answers differ from PyTorch's: do not rely on what you see, and try another browser.";
}

// After the page has been drawn.
setTimeout(() => main().catch(error => { document.getElementById("proof").textContent = `The model cannot be opened here: ${error.message}`; throw error; }));
