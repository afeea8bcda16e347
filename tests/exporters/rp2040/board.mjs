// Both cores of an RP2040 on two of rp2040js's chips, which have one each: they share SRAM and flash, and the first has
// the peripherals. Ours are the FIFOs between the cores, the boot ROM's part in starting the second, what reads of the
// flash cost, and how often both cores want the same bank of SRAM.
import fs from 'node:fs';
import { ConsoleLogger, LogLevel, Simulator } from 'rp2040js';

export const FLASH = 0x10000000, FLASH_BYTES = 2 * 1024 * 1024;
export const SRAM = 0x20000000, SRAM_BYTES = 264 * 1024;
const STAGE2 = 0x20041f00;
const NANOSECONDS_PER_CYCLE = 8;
const CPUID = 0x00, FIFO_ST = 0x50, FIFO_WR = 0x54, FIFO_RD = 0x58;
const VALID = 1, READY = 2;
const FORCE_OFF = 0x04, PROC1 = 1 << 16;
const SEV = 0xbf40;
const LAUNCH = [0, 0, 1]; // then vectors, stack, entry
// The cache of the flash: 1,024 sets of two lines of 8 bytes (data sheet 2.6.3), read in two words, each by a command of
// 8 bits, 24 of address and 32 of data at a quarter of the clock.
const LINE = 8, SETS = 1024, MISS_CYCLES = 2 * (4 * 64 + 16);

export class Board {
  constructor(uf2, { cores = 2, charge = false } = {}) {
    const { rp2040: first, clock } = new Simulator();
    const { rp2040: second } = new Simulator();
    this.chips = [first, second];
    this.clock = clock;
    this.inbox = [[], []];
    this.absent = cores === 1;
    this.rom = null; // words that core 1's boot ROM took; null while the core is held in reset
    this.running = false; // the second core
    this.cycles = [0, 0];
    this.accesses = [0, 0]; // to SRAM, instructions fetched by words
    this.misses = 0;
    this.lines = Array.from({ length: SETS }, () => [-1, -1]);
    for (const chip of this.chips) {
      chip.logger = new ConsoleLogger(LogLevel.Error, false);
      chip.peek = chip.readUint16.bind(chip); // uncounted
    }
    loadUf2(first.flash, fs.readFileSync(uf2));
    checkStage2(first.flash);
    for (const name of ['sram', 'sramView', 'flash', 'flash16', 'flashView']) second[name] = first[name];
    for (const core of [0, 1]) this.connect(core);
    if (charge) for (const core of [0, 1]) this.count(core);
    const psm = first.peripherals[0x40010];
    const write = psm.writeUint32.bind(psm);
    psm.writeUint32 = (offset, value) => {
      write(offset, value);
      if (offset === FORCE_OFF) this.reset(Boolean(value & PROC1));
    };
    first.sram.set(first.flash.subarray(0, 256), STAGE2 - SRAM);
    start(first.core, STAGE2, STAGE2);
    first.core.LR = 0;
  }

  connect(core) {
    const { sio } = this.chips[core];
    const read = sio.readUint32.bind(sio), write = sio.writeUint32.bind(sio);
    sio.readUint32 = (offset) => {
      if (offset === CPUID) return core;
      if (offset === FIFO_ST) return READY | (this.inbox[core].length ? VALID : 0);
      if (offset === FIFO_RD) {
        if (!this.inbox[core].length) throw Error(`core ${core} reads from an empty FIFO`);
        return this.inbox[core].shift();
      }
      return read(offset);
    };
    sio.writeUint32 = (offset, value) => (offset === FIFO_WR ? this.post(1 - core, value >>> 0) : write(offset, value));
  }

  post(to, word) {
    if (to === 1 && !this.running) {
      if (this.rom) this.bootSecond(word);
      return;
    }
    this.inbox[to].push(word);
    if (this.inbox[to].length > 8) throw Error(`the FIFO to core ${to} overflows`);
    this.chips[to].core.waiting = false;
    this.cycles[1] = Math.max(this.cycles[1], this.cycles[0]); // a core that slept wakes now
  }

  // The boot ROM of core 1 echoes each word, and begins anew at one that does not belong there (2.8.2).
  bootSecond(word) {
    this.inbox[0].push(word);
    if (this.rom.length < LAUNCH.length && word !== LAUNCH[this.rom.length]) this.rom = [];
    else this.rom.push(word);
    if (this.rom.length < 6) return;
    start(this.chips[1].core, this.rom[4], this.rom[5] & ~1);
    this.cycles[1] = this.cycles[0];
    this.running = true;
  }

  reset(held) {
    this.rom = held || this.absent ? null : [];
    this.running = false;
    this.inbox[1] = [];
    if (this.rom) this.inbox[0].push(0); // "I have emptied my FIFO"
  }

  // Counts accesses to SRAM and, where the first core reads flash, adds what a line costs that is not in the cache.
  count(core) {
    const chip = this.chips[core];
    for (const name of ['readUint8', 'readUint16', 'readUint32', 'writeUint8', 'writeUint16', 'writeUint32']) {
      const access = chip[name].bind(chip);
      chip[name] = (address, value) => {
        address >>>= 0;
        if (address >= SRAM && address < SRAM + SRAM_BYTES)
          this.accesses[core] += address === chip.core.PC >>> 0 && name === 'readUint16' ? 0.5 : 1;
        else if (address >= FLASH && address < FLASH + FLASH_BYTES) this.touch(core, address);
        return access(address, value);
      };
    }
  }

  touch(core, address) {
    const line = Math.floor((address - FLASH) / LINE), ways = this.lines[line % SETS];
    if (ways[0] === line) return;
    if (ways[1] !== line) {
      this.misses++;
      this.cycles[core] += MISS_CYCLES;
      this.clock.tick(core ? 0 : MISS_CYCLES * NANOSECONDS_PER_CYCLE);
    }
    this.lines[line % SETS] = [line, ways[0]];
  }

  // One instruction of the first core, and as many of the second as fit beside it.
  step() {
    const { core } = this.chips[0];
    if (core.waiting) throw Error('the firmware has halted');
    const passed = execute(this.chips[0]);
    this.cycles[0] += passed;
    this.clock.tick(passed * NANOSECONDS_PER_CYCLE);
    const other = this.chips[1];
    while (this.running && !other.core.waiting && this.cycles[1] < this.cycles[0]) this.cycles[1] += execute(other);
    return passed;
  }
}

function execute(chip) {
  const { core } = chip;
  if (chip.peek(core.PC & ~1) === SEV) { // which rp2040js does not know; a word in a FIFO wakes its core anyway
    core.PC += 2;
    return 1;
  }
  return core.executeInstruction();
}

function start(core, stack, place) {
  core.SP = stack;
  core.PC = place;
  core.VTOR = 0x10000100;
  core.waiting = false;
}

function loadUf2(flash, file) {
  if (!file.length || file.length % 512) throw Error('the UF2 is not a multiple of 512 bytes');
  for (let at = 0; at < file.length; at += 512) {
    const word = (offset) => file.readUInt32LE(at + offset);
    if (word(0) !== 0x0a324655 || word(4) !== 0x9e5d5157 || word(508) !== 0x0ab16f30) throw Error('not a UF2 file');
    if (word(28) !== 0xe48bff56) throw Error('the UF2 is not for an RP2040');
    if (word(16) !== 256 || word(20) !== at / 512 || word(24) !== file.length / 512)
      throw Error('the UF2 has a wrong block');
    if (word(12) < FLASH || word(12) + 256 > FLASH + FLASH_BYTES)
      throw Error('the UF2 has a block outside of the flash');
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
    throw Error('the checksum of the second stage of the boot is wrong: the boot ROM would not start it');
}
