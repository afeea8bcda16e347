// Asks the kernel of a page questions without a browser: node ask.mjs PAGE [QUESTIONS]
// Prints the largest difference between its answers and those in the page, and its answers to further questions.
import { readFileSync } from "node:fs";
import vm from "node:vm";

const html = readFileSync(process.argv[2], "utf8");
const [, model] = html.match(/<script type="application\/json" id="model">(.*?)<\/script>/s);
const [, script] = html.match(/<\/script>\s*<script>(.*?)<\/script>/s);
const { config, expected, files } = JSON.parse(model);
const context = vm.createContext({ atob, WebAssembly, TextDecoder, TextEncoder, performance, setTimeout() {} });
const { openModel, fromBase64, proof } = vm.runInContext(`${script}\n({ openModel, fromBase64, proof })`, context);
const backend = await openModel(config, Object.fromEntries(Object.entries(files).map(([name, text]) => [name, fromBase64(text)])));
const answers = [];
for (const [method, ...given] of JSON.parse(process.argv[3] ? readFileSync(process.argv[3], "utf8") : "[]")) {
  const found = await backend[method](...given);
  answers.push(found[Symbol.iterator] && !Array.isArray(found) ? [...found] : found);
}
console.log(JSON.stringify({ difference: await proof(backend, expected), answers }));
