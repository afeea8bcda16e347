// Run Python from standard input in MicroPython:  node micropython.mjs FOLDER < code.py
// The files of FOLDER are in MicroPython's file system. A line `#--` parts the code: garbage is collected there, which
// this build of MicroPython does only while no Python is running.
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";

import { loadMicroPython } from "@micropython/micropython-webassembly-pyscript";

const folder = process.argv[2];
const micropython = await loadMicroPython({ heapsize: 16 * 1024 * 1024, stdout: (line) => console.log(line) });
for (const name of readdirSync(folder)) micropython.FS.writeFile(`/${name}`, readFileSync(join(folder, name)));
try {
  for (const part of readFileSync(0, "utf8").split("\n#--\n")) {
    micropython.runPython("import gc; gc.collect()");
    micropython.runPython(part);
  }
} catch (error) {
  console.error(error.message); // node would print the line of the package at fault, 100 kB of code
  process.exitCode = 1;
}
