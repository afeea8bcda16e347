// The flash of an emulated RP2040, and what reads it: the serial interface (SSI, data sheet 4.10) and channel 0 of the DMA with
// its sniffer (2.5), as far as the firmware uses them. The flash chip is one of Winbond's, fresh from the factory.

const QUAD_FRAMES = 0x5f0300, SERIAL_FRAMES = 0x1f0300, COMMAND_FRAMES = 0x70000;
const EXPECTING_COMMAND = 0x2221, CONTINUOUS = 0xa0002022, SERIAL_READ = 0x03000218, MODE = 0xa0;
const DMA_ENABLED = 1, DMA_BUSY = 1 << 24, SNIFFED = 1 << 23, SWAPPED = 1 << 22, ONWARD = 1 << 5;

class FlashInterface {
  // `store(address, word)` writes SRAM, `now()` is the time in cycles; without `quad`, the chip has one data line only.
  constructor(flash, store, now, { quad = true, id = [0xe6, 0x61, 0x38, 0x21, 0xab, 0xcd, 0x12, 0x34] } = {}) {
    Object.assign(this, { flash, store, now, quad, id });
    this.status = [0, 0];  // of the flash chip; bit 1 of the second is QE
    this.streamed = 0;  // words so far
    this.reset();
    const peripheral = (read, write) => ({
      readUint32: read,
      writeUint32: write,
      writeUint32Atomic: (offset, value, how) => {
        const old = how ? read(offset) : 0;
        write(offset, [value, old ^ value, old | value, old & ~value][how] >>> 0);
      },
    });
    this.ssi = peripheral(offset => this.readInterface(offset), (offset, value) => this.writeInterface(offset, value >>> 0));
    this.channel = peripheral(offset => this.readChannel(offset), (offset, value) => this.writeChannel(offset, value >>> 0));
  }

  // As the second stage of the boot has it.
  reset() {
    this.registers = { 0x00: SERIAL_FRAMES, 0x04: 0, 0x08: 1, 0x14: 4, 0x4c: 0, 0xf0: 0, 0xf4: SERIAL_READ };
    this.sent = [];  // bytes or words since the chip was selected
    this.received = [];
    this.writable = this.continuous = false;
    this.dma = {};
    this.pending = null;  // a transfer of many words
  }

  // Whether a read of flash as memory gives its content now; an error where it would hang or disturb a transfer.
  readable() {
    const { registers } = this;
    if (this.pending || !registers[0x08] || registers[0x04]) throw new Error("flash is read as memory during a transfer");
    if (registers[0x00] == SERIAL_FRAMES && registers[0xf4] == SERIAL_READ) return !this.continuous;
    return registers[0x00] == QUAD_FRAMES && registers[0xf4] == CONTINUOUS && this.continuous;
  }

  // Cycles to fill a cache line of two 32-bit words: on one data line after 8 bits of command and 24 of address, on four after
  // 32 bits of address and mode and 4 dummy cycles.
  lineCycles() {
    const clocks = this.registers[0x00] == QUAD_FRAMES ? 8 + 4 + 8 : 64;
    return 2 * (clocks * this.registers[0x14] + 16);
  }

  readInterface(offset) {
    if (offset == 0x28) return (this.received.length ? 8 : 0) | 4 | 2;  // never busy: what is sent is answered at once
    if (offset != 0x60) return this.registers[offset] ?? 0;
    if (!this.received.length) throw new Error("the flash interface is read while it is empty");
    const value = this.received.shift();
    if (!this.received.length) this.deselect();
    return value;
  }

  writeInterface(offset, value) {
    if (offset != 0x60) {
      this.registers[offset] = value;
      return;
    }
    const { registers, sent } = this;
    if (!registers[0x08]) throw new Error("the flash interface is off");
    sent.push(value);
    if (registers[0x00] == COMMAND_FRAMES) this.received.push(this.answer());
    else if (registers[0x00] == QUAD_FRAMES && registers[0xf4] == EXPECTING_COMMAND) {
      if (sent.length < 2) return;
      this.continuous = this.works() && sent[0] == 0xeb && (value & 255) == MODE;
      this.received.push(0);
    } else if (registers[0x00] == QUAD_FRAMES && registers[0xf4] == CONTINUOUS) this.address(value);
    else throw new Error("a transfer in a mode that is not emulated");
  }

  works() {
    return this.quad && (this.status[1] & 2) != 0;
  }

  // The chip's reply while it takes the newest byte.
  answer() {
    const { sent } = this, place = sent.length - 1;
    if (sent[0] == 0x05 && place) return this.status[0];
    if (sent[0] == 0x35 && place) return this.status[1];
    if (sent[0] == 0x4b && place > 4) return this.id[place - 5] ?? 0;
    return 0;
  }

  deselect() {
    const [command, ...rest] = this.sent;
    if (this.registers[0x00] == COMMAND_FRAMES) {
      if (command == 0x01 && this.writable && this.quad) this.status = rest.slice(0, 2);
      this.writable = command == 0x06;
    }
    this.sent = [];
  }

  // An address without a command: one word, or as many as the DMA takes.
  address(value) {
    this.sent = [];
    if ((value & 255) != MODE || !this.continuous) {
      this.continuous = false;
      this.received.push(0);
      return;
    }
    const words = this.registers[0x04] + 1, { dma } = this, start = value >>> 8;
    if (!(this.registers[0x4c] & 1) || !(dma[0x0c] & DMA_ENABLED) || dma[0x08] != words) throw new Error("no DMA waits for the flash");
    if (this.pending) throw new Error("a transfer from flash begins during another one");
    this.pending = { start, words, end: this.now() + this.registers[0x14] * (8 + 4 + 8 * words) };
    if (dma[0x0c] & ONWARD) for (let i = 0; i < words; i++) this.store(dma[0x04] + 4 * i, 0xffffffff);  // until the data have come
  }

  complete() {
    const { start, words } = this.pending, { dma, flash } = this, view = new DataView(flash.buffer, flash.byteOffset);
    if (dma[0x0c] & ONWARD)
      for (let i = 0; i < words; i++)
        this.store(dma[0x04] + 4 * i, view.getUint32(start + 4 * i, Boolean(dma[0x0c] & SWAPPED)));
    if (dma[0x0c] & SNIFFED) dma[0x438] = sniffed(flash, start, 4 * words, dma[0x438]);
    this.streamed += words;
    this.pending = null;
  }

  readChannel(offset) {
    if (offset == 0x438) return (this.dma[0x434] & (3 << 10)) == 3 << 10 ? ~this.dma[0x438] >>> 0 : this.dma[0x438];
    if (offset != 0x0c) return this.dma[offset] ?? 0;
    if (this.pending && this.now() >= this.pending.end) this.complete();
    return ((this.dma[0x0c] ?? 0) | (this.pending ? DMA_BUSY : 0)) >>> 0;
  }

  writeChannel(offset, value) {
    if (this.pending) throw new Error("the DMA is changed during a transfer");
    this.dma[offset] = value;
  }
}

// The inner state of a CRC-32 after more bytes.
function sniffed(bytes, start, count, state) {
  sniffed.table ??= Uint32Array.from({ length: 256 }, (_, byte) => {
    for (let bit = 0; bit < 8; bit++) byte = byte & 1 ? (byte >>> 1) ^ 0xedb88320 : byte >>> 1;
    return byte;
  });
  for (let i = start; i < start + count; i++) state = (state >>> 8) ^ sniffed.table[(state ^ bytes[i]) & 255];
  return state >>> 0;
}
