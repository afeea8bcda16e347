// Runs a UF2 on rp2040js, as the boot ROM would start it, and talks to its UART:
//
//     node run.mjs story.uf2 [--seconds 60] [--cycles 4000000000] [--profile SYMBOLS] LINE...
//
// The lines (of standard input, if none are given) go in one at a time whenever the prompt "> " appears. What the
// firmware prints goes to standard output, the cycles to standard error; with --profile, which takes the output of
// `nm -n runtime.elf`, also those of each function. Exits with 1 if something is wrong or takes too long.
import fs from 'node:fs';
import { ConsoleLogger, LogLevel, Simulator } from 'rp2040js';

const FLASH = 0x10000000, FLASH_BYTES = 2 * 1024 * 1024;
const SRAM = 0x20000000, SRAM_BYTES = 264 * 1024, STAGE2 = 0x20041f00;
const NANOSECONDS_PER_CYCLE = 8, INSTRUCTIONS_PER_CHECK = 20000;

function main() {
  const options = parse(process.argv.slice(2));
  const { rp2040: chip, clock } = new Simulator();
  chip.logger = new ConsoleLogger(LogLevel.Error, false);
  loadUf2(chip.flash, fs.readFileSync(options.uf2));
  checkStage2(chip.flash);
  chip.sram.set(chip.flash.subarray(0, 256), STAGE2 - SRAM);
  chip.core.SP = STAGE2;
  chip.core.LR = 0;
  chip.core.PC = STAGE2;

  const lines = options.lines.length ? options.lines : fs.readFileSync(0, 'latin1').split('\n').filter((line) => line);
  const profile = options.profile ? new Profile(options.profile) : null;
  let last = '', next = 0, waiting = false, input = [];
  chip.uart[0].onByte = (byte) => {
    process.stdout.write(Uint8Array.of(byte));
    waiting = last === '\n>' && byte === 32;
    last = (last + String.fromCharCode(byte)).slice(-2);
  };

  const start = Date.now();
  let cycles = 0;
  for (;;) {
    for (let i = 0; i < INSTRUCTIONS_PER_CHECK; i++) {
      const at = chip.core.PC;
      const passed = chip.core.executeInstruction();
      cycles += passed;
      profile?.add(at, passed);
      clock.tick(passed * NANOSECONDS_PER_CYCLE);
      if (chip.core.waiting) stop(options, profile, cycles, 'the firmware has halted');
    }
    const pc = chip.core.PC >>> 0;
    if (!(pc >= FLASH && pc < FLASH + FLASH_BYTES) && !(pc >= SRAM && pc < SRAM + SRAM_BYTES))
      stop(options, profile, cycles, `the program counter is ${pc.toString(16)}`);
    if (waiting && !input.length) {
      if (next === lines.length) stop(options, profile, cycles);
      waiting = false;
      input = [...Buffer.from(lines[next++] + '\r', options.lines.length ? 'utf8' : 'latin1')];
    }
    while (input.length && !chip.uart[0].rxFIFO.full) chip.uart[0].feedByte(input.shift());
    if (Date.now() - start > options.seconds * 1000)
      stop(options, profile, cycles, `${options.seconds} s are over, at ${pc.toString(16)}`);
    if (cycles > options.cycles)
      stop(options, profile, cycles, `${options.cycles} cycles are over, at ${pc.toString(16)}`);
  }
}

function parse(args) {
  const options = { seconds: 60, cycles: 4e9, profile: null, lines: [] };
  while (args.length) {
    const arg = args.shift();
    if (arg === '--seconds' || arg === '--cycles') options[arg.slice(2)] = Number(args.shift());
    else if (arg === '--profile') options.profile = args.shift();
    else if (!options.uf2) options.uf2 = arg;
    else options.lines.push(arg);
  }
  if (!options.uf2) fail('usage: node run.mjs story.uf2 [--seconds N] [--cycles N] [LINE...]');
  return options;
}

function loadUf2(flash, file) {
  if (!file.length || file.length % 512) fail('the UF2 is not a multiple of 512 bytes');
  for (let at = 0; at < file.length; at += 512) {
    const word = (offset) => file.readUInt32LE(at + offset);
    if (word(0) !== 0x0a324655 || word(4) !== 0x9e5d5157 || word(508) !== 0x0ab16f30) fail('not a UF2 file');
    if (word(28) !== 0xe48bff56) fail('the UF2 is not for an RP2040');
    if (word(16) !== 256 || word(20) !== at / 512 || word(24) !== file.length / 512) fail('the UF2 has a wrong block');
    if (word(12) < FLASH || word(12) + 256 > FLASH + FLASH_BYTES) fail('the UF2 has a block outside of the flash');
    flash.set(file.subarray(at + 32, at + 288), word(12) - FLASH);
  }
}

function checkStage2(flash) {
  let crc = 0xffffffff;
  for (const byte of flash.subarray(0, 252)) {
    crc ^= byte << 24;
    for (let bit = 0; bit < 8; bit++) crc = crc & 0x80000000 ? (crc << 1) ^ 0x04c11db7 : crc << 1;
  }
  if (crc >>> 0 !== Buffer.from(flash.subarray(252, 256)).readUInt32LE(0))
    fail('the checksum of the second stage of the boot is wrong: the boot ROM would not start it');
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

function stop(options, profile, cycles, reason) {
  profile?.print();
  console.error(`${cycles} cycles`);
  if (reason) fail(reason);
  process.exit(0);
}

function fail(reason) {
  console.error(`run.mjs: ${reason}`);
  process.exit(1);
}

main();
