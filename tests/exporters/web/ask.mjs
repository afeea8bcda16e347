// Asks the kernel of a page questions without a browser: node ask.mjs PAGE [QUESTIONS]
// Prints the largest difference between its answers and those in the page, and its answers to further questions.
import { readFileSync } from "node:fs";
import vm from "node:vm";

const html = readFileSync(process.argv[2], "utf8");
const [, model] = html.match(/<script type="application\/json" id="model">(.*?)<\/script>/s);
const [, script] = html.match(/<\/script>\s*<script>(.*?)<\/script>/s);
const { config, expected, files } = JSON.parse(model);
const context = vm.createContext({ atob, WebAssembly, TextDecoder, TextEncoder, Response, Blob, DecompressionStream, performance, setTimeout() {} });
const taken = "openModel, unpacked, proof, chipTalk: typeof Chip == 'function' && { Chip, flashed }";
const { openModel, unpacked, proof, chipTalk } = vm.runInContext(`${script}\n({ ${taken} })`, context);
const bytes = await unpacked(files);
const backend = await openModel(config, bytes);

// What the emulated chip prints when it is booted, and answers to lines; last the error that ends it, if one does.
backend.talk = (lines) => {
  const said = [""], chip = new chipTalk.Chip(chipTalk.flashed(bytes), (byte) => said.push(said.pop() + String.fromCharCode(byte)));
  while (said.length <= lines.length || !said.at(-1).endsWith("\n> ")) {
    try {
      chip.run(20000);
    } catch (error) {
      return [...said, error.message];
    }
    if (said.length <= lines.length && said.at(-1).endsWith("\n> ")) chip.type(lines[said.push("") - 2]);
  }
  return said;
};
const answers = [];
for (const [method, ...given] of JSON.parse(process.argv[3] ? readFileSync(process.argv[3], "utf8") : "[]")) {
  const found = await backend[method](...given);
  answers.push(found[Symbol.iterator] && !Array.isArray(found) ? [...found] : found);
}
console.log(JSON.stringify({ difference: await proof(backend, expected), answers }));
