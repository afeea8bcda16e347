// Both cores of an RP2040 on two of rp2040js's chips, which have one each: they share SRAM and flash, and the first has
// the peripherals. Ours are the FIFOs between the cores, the boot ROM's part in starting the second, the flash and what
// reads of it cost, and how often both cores want the same bank of SRAM.
import fs from 'node:fs';
import { ConsoleLogger, LogLevel, Simulator } from 'rp2040js';

const FlashInterface = new Function(
  `${fs.readFileSync(new URL('../../../exporters/web/flash.js', import.meta.url))}; return FlashInterface;`,
)();

export const FLASH = 0x10000000, FLASH_BYTES = 16 * 1024 * 1024;
export const SRAM = 0x20000000, SRAM_BYTES = 264 * 1024;
const STAGE2 = 0x20041f00;
const NANOSECONDS_PER_CYCLE = 8;
const CPUID = 0x00, FIFO_ST = 0x50, FIFO_WR = 0x54, FIFO_RD = 0x58;
const VALID = 1, READY = 2;
const FORCE_OFF = 0x04, PROC1 = 1 << 16;
const SEV = 0xbf40;
const LAUNCH = [0, 0, 1]; // then vectors, stack, entry
const LINE = 8, SETS = 1024; // the cache of the flash, two lines in each set (data sheet 2.6.3)
const BANKS = 4; // of SRAM, words in turn

export class Board {
  constructor(uf2, { cores = 2, charge = false, contend = false, serial = false } = {}) {
    const { rp2040: first, clock } = new Simulator();
    const { rp2040: second } = new Simulator();
    this.chips = [first, second];
    this.clock = clock;
    this.inbox = [[], []];
    this.absent = cores === 1;
    this.rom = null; // words that core 1's boot ROM took; null while the core is held in reset
    this.running = false; // the second core
    this.cycles = [0, 0];
    this.busy = [0, 0]; // cycles at work
    this.accesses = [0, 0]; // to SRAM, instructions fetched by words
    this.contend = contend;
    this.stalls = [0, 0]; // cycles that cores wait for a bank
    this.misses = 0;
    this.lines = Array.from({ length: SETS }, () => [-1, -1]);
    for (const chip of this.chips) {
      chip.logger = new ConsoleLogger(LogLevel.Error, false);
      chip.peek = chip.readUint16.bind(chip); // uncounted
    }
    loadUf2(first.flash, fs.readFileSync(uf2));
    checkStage2(first.flash);
    for (const name of ['sram', 'sramView', 'flash', 'flash16', 'flashView']) second[name] = first[name];
    const store = (address, word) => first.sramView.setUint32(address - SRAM, word, true);
    this.interface = new FlashInterface(first.flash, store, () => this.cycles[0], { quad: !serial });
    for (const chip of this.chips) Object.assign(chip.peripherals, {
      0x18000: this.interface.ssi,
      0x50000: this.interface.channel,
      0x40060: { readUint32: () => (Math.random() * 2) & 1, writeUint32Atomic() {} }, // the ring oscillator
    });
    for (const core of [0, 1]) this.connect(core);
    if (charge || contend || serial) for (const core of [0, 1]) this.count(core, charge);
    const psm = first.peripherals[0x40010];
    const write = psm.writeUint32.bind(psm);
    psm.writeUint32 = (offset, value) => {
      write(offset, value);
      if (offset === FORCE_OFF) this.reset(Boolean(value & PROC1));
    };
    this.watchdog = first.peripherals[0x40058];
    this.watchdog.onWatchdogTrigger = () => this.boot();
    this.boot();
  }

  // What the boot ROM does after power is on or the watchdog barked.
  boot() {
    const [{ core, sram, flash }] = this.chips;
    this.watchdog.writeUint32(0, 0);
    this.reset(true);
    this.interface.reset();
    core.reset();
    sram.set(flash.subarray(0, 256), STAGE2 - SRAM);
    start(core, STAGE2, STAGE2);
    core.LR = 0;
  }

  // Time goes on, and no instruction is executed.
  hang(milliseconds) {
    for (; milliseconds > 0; milliseconds--) this.delay(0, 1e6 / NANOSECONDS_PER_CYCLE);
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
  count(core, charge) {
    const chip = this.chips[core];
    for (const name of ['readUint8', 'readUint16', 'readUint32', 'writeUint8', 'writeUint16', 'writeUint32']) {
      const access = chip[name].bind(chip);
      chip[name] = (address, value) => {
        address >>>= 0;
        if (address >= SRAM && address < SRAM + SRAM_BYTES)
          this.use(core, address === chip.core.PC >>> 0 && name === 'readUint16' ? 0.5 : 1);
        else if (address >= FLASH && address < FLASH + 4 * FLASH_BYTES) {
          if (!this.interface.readable()) return 0x5a5a5a5a & (name === 'readUint32' ? -1 : name === 'readUint16' ? 0xffff : 0xff);
          if (charge) this.touch(core, address);
        }
        return access(address, value);
      };
    }
  }

  // The chance that the other core wants the same bank in the same cycle; then one of both waits.
  use(core, share) {
    this.accesses[core] += share;
    const other = 1 - core;
    if (!this.contend || !this.running || this.chips[other].core.waiting) return;
    const before = Math.floor(this.stalls[core]);
    this.stalls[core] += (share * this.accesses[other]) / Math.max(1, this.busy[other]) / BANKS / 2;
    if (Math.floor(this.stalls[core]) > before) this.delay(core, 1);
  }

  delay(core, cycles) {
    this.cycles[core] += cycles;
    this.clock.tick(core ? 0 : cycles * NANOSECONDS_PER_CYCLE);
  }

  touch(core, address) {
    if (address >= FLASH + 2 * FLASH_BYTES) { // past the cache, a word
      this.delay(core, this.interface.lineCycles() / 2);
      return;
    }
    const line = Math.floor((address - FLASH) / LINE), ways = this.lines[line % SETS];
    if (ways[0] === line) return;
    if (ways[1] !== line) {
      this.misses++;
      this.delay(core, this.interface.lineCycles());
    }
    this.lines[line % SETS] = [line, ways[0]];
  }

  // One instruction of the first core, and as many of the second as fit beside it.
  step() {
    const { core } = this.chips[0];
    if (core.waiting) throw Error('the firmware has halted');
    const passed = execute(this.chips[0]);
    this.cycles[0] += passed;
    this.busy[0] += passed;
    this.clock.tick(passed * NANOSECONDS_PER_CYCLE);
    const other = this.chips[1];
    while (this.running && !other.core.waiting && this.cycles[1] < this.cycles[0]) {
      const took = execute(other);
      this.cycles[1] += took;
      this.busy[1] += took;
    }
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
  let taken = 0;
  for (let at = 0; at < file.length; at += 512) {
    const word = (offset) => file.readUInt32LE(at + offset);
    if (word(0) !== 0x0a324655 || word(4) !== 0x9e5d5157 || word(508) !== 0x0ab16f30) throw Error('not a UF2 file');
    if (word(28) !== 0xe48bff56) continue; // for another chip, which this one passes over
    if (word(16) !== 256 || word(20) !== taken++) throw Error('the UF2 has a wrong block');
    if (word(12) < FLASH || word(12) + 256 > FLASH + FLASH_BYTES)
      throw Error('the UF2 has a block outside of the flash');
    flash.set(file.subarray(at + 32, at + 288), word(12) - FLASH);
  }
  if (!taken) throw Error('the UF2 is not for an RP2040');
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
