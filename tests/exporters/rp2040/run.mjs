// Runs a UF2 on both cores of an emulated RP2040, as the boot ROM would start it, and talks to its UART:
//
//     node run.mjs story.uf2 [--seconds 60] [--cycles 4000000000] [--cores 1] [--charge] [--contend] [--serial] [--usb [--replug CYCLES]] [--hang CYCLES] [--profile SYMBOLS] LINE...
//
// The lines (of standard input, if none are given) go in one at a time whenever the prompt "> " appears. What the
// firmware prints goes to standard output, the cycles to standard error; with --profile, which takes the output of
// `nm -n runtime.elf`, also those of each function. --charge adds what reads of the flash cost that are not in its cache,
// and counts accesses to SRAM; --contend adds what both cores' wanting the same bank of it costs; --serial is a flash chip
// without quad reads; --usb talks over USB instead, and --replug pulls the cable for a moment after so many
// cycles, --hang stops the cores for 1.1 s. Exits with 1 if something is wrong or takes too long.
import fs from 'node:fs';
import { USBCDC } from 'rp2040js';
import { Board, FLASH, FLASH_BYTES, SRAM, SRAM_BYTES } from './board.mjs';

const INSTRUCTIONS_PER_CHECK = 20000;

function main() {
  const options = parse(process.argv.slice(2));
  const board = new Board(options.uf2, options), [chip] = board.chips;
  const lines = options.lines.length ? options.lines : fs.readFileSync(0, 'latin1').split('\n').filter((line) => line);
  const profile = options.profile ? new Profile(options.profile) : null;
  const terminal = new Terminal(lines, options.lines.length ? 'utf8' : 'latin1');
  let host = options.usb ? plugged(chip, terminal) : null;
  chip.uart[0].onByte = (byte) => (options.usb ? null : terminal.show(byte));

  const start = Date.now();
  let booted = false;
  for (;;) {
    for (let i = 0; i < INSTRUCTIONS_PER_CHECK; i++) {
      const at = chip.core.PC;
      const passed = board.step();
      profile?.add(at, passed);
    }
    if (host && board.cycles[0] > options.replug) {
      host = plugged(chip, terminal);
      chip.usbCtrl.resetDevice(); // what a device sees of a cable that was pulled out and put in again
      options.replug = Infinity;
    }
    if (board.cycles[0] > options.hang) {
      options.hang = Infinity;
      board.hang(1100);
    }
    const pc = chip.core.PC >>> 0;
    if (!(pc >= FLASH && pc < FLASH + FLASH_BYTES) && !(pc >= SRAM && pc < SRAM + SRAM_BYTES))
      stop(board, profile, `the program counter is ${pc.toString(16)}`);
    if (terminal.waiting && !booted) {
      console.error(`first prompt after ${board.cycles[0]} cycles`);
      booted = true;
    }
    if (!terminal.type()) stop(board, profile);
    while (terminal.input.length && !(host ? host.txFIFO : chip.uart[0].rxFIFO).full)
      if (host) host.sendSerialByte(terminal.input.shift());
      else chip.uart[0].feedByte(terminal.input.shift());
    if (Date.now() - start > options.seconds * 1000)
      stop(board, profile, `${options.seconds} s are over, at ${pc.toString(16)}`);
    if (board.cycles[0] > options.cycles)
      stop(board, profile, `${options.cycles} cycles are over, at ${pc.toString(16)}`);
  }
}

// A person who types a line whenever the prompt "> " appears.
class Terminal {
  constructor(lines, encoding) {
    Object.assign(this, { lines, encoding, next: 0, last: '', waiting: false, input: [] });
  }

  show(byte) {
    process.stdout.write(Uint8Array.of(byte));
    this.waiting = this.last === '\n>' && byte === 32;
    this.last = (this.last + String.fromCharCode(byte)).slice(-2);
  }

  // False once the last line is answered.
  type() {
    if (!this.waiting || this.input.length) return true;
    if (this.next === this.lines.length) return false;
    this.waiting = false;
    this.input = [...Buffer.from(this.lines[this.next++] + '\r', this.encoding)];
    return true;
  }
}

// A USB host that sets the device up and opens a terminal.
function plugged(chip, terminal) {
  const host = new USBCDC(chip.usbCtrl);
  host.onSerialData = (bytes) => bytes.forEach((byte) => terminal.show(byte));
  return host;
}

function parse(args) {
  const options = { seconds: 60, cycles: 4e9, cores: 2, profile: null, charge: false, contend: false, serial: false, usb: false, replug: Infinity, hang: Infinity, lines: [] };
  while (args.length) {
    const arg = args.shift();
    if (['--seconds', '--cycles', '--cores', '--replug', '--hang'].includes(arg)) options[arg.slice(2)] = Number(args.shift());
    else if (['--charge', '--contend', '--serial', '--usb'].includes(arg)) options[arg.slice(2)] = true;
    else if (arg === '--profile') options.profile = args.shift();
    else if (!options.uf2) options.uf2 = arg;
    else options.lines.push(arg);
  }
  if (!options.uf2) fail('usage: node run.mjs story.uf2 [--seconds N] [--cycles N] [--cores 1] [--charge] [--contend] [--serial] [--usb] [LINE...]');
  return options;
}

// Cycles by function; the symbols are the output of `nm -n`.
class Profile {
  constructor(path) {
    this.symbols = fs.readFileSync(path, 'utf8').trim().split('\n').map((line) => line.split(/\s+/))
      .filter(([, kind]) => /t/i.test(kind)).map(([address, , name]) => [parseInt(address, 16), name]);
    this.cycles = new Map();
  }

  add(at, cycles) {
    this.cycles.set(at, (this.cycles.get(at) ?? 0) + cycles);
  }

  print() {
    const totals = {};
    for (const [at, cycles] of this.cycles) {
      const name = this.symbols.findLast(([address]) => address <= at)?.[1] ?? 'boot';
      totals[name] = (totals[name] ?? 0) + cycles;
    }
    for (const [name, cycles] of Object.entries(totals).sort((a, b) => b[1] - a[1])) console.error(name, cycles);
  }
}

function stop(board, profile, reason) {
  profile?.print();
  console.error(`${board.cycles[0]} cycles`);
  if (board.misses) console.error(`${board.misses} misses, accesses to SRAM ${board.accesses.join(' ')}`);
  if (board.contend) console.error(`stalls ${board.stalls.map(Math.floor).join(' ')}`);
  if (reason) fail(reason);
  process.exit(0);
}

function fail(reason) {
  console.error(`run.mjs: ${reason}`);
  process.exit(1);
}

try {
  main();
} catch (error) {
  fail(error.message);
}
