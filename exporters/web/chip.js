// The firmware itself on an emulated RP2040, as proof that the page and the chip tell the same story: the flash holds what
// story.uf2 writes into it. Only one of the two cores is emulated; the firmware works with it alone, at half its speed.

const FLASH_START = 0x10000000, STAGE2 = 0x20041f00, VECTORS = 0x10000100, SEND_EVENT = 0xbf40;
const FIFO_STATUS = 0x50, READY = 2, FIFO_WRITE = 0x54, NANOSECONDS = 8;  // a cycle

// What story.uf2 writes, as exporters/rp2040/FORMAT.md lays it out.
function flashed(files) {
  const model = 0x10000, flash = new Uint8Array(16 * 1024 * 1024);
  flash.set(files["runtime.bin"], 0);
  flash.set(files["settings.bin"], 0xff00);
  flash.set(files["model.bin"], model);
  flash.set(files["vocabulary.bin"], model + Math.ceil(files["model.bin"].length / 256) * 256);
  return flash;
}

class Chip {
  constructor(flash, show) {
    const { rp2040, clock } = new rp2040js.Simulator(), { core, sio } = rp2040;
    Object.assign(this, { rp2040, clock, core, cycles: 0, typed: [] });
    rp2040.logger = { debug() {}, info() {}, warn() {}, error() {} };
    rp2040.flash.set(flash);
    const store = (address, word) => rp2040.sramView.setUint32(address - 0x20000000, word, true);
    const device = new FlashInterface(rp2040.flash, store, () => this.cycles);
    const ring = { readUint32: () => Math.random() * 2 & 1, writeUint32Atomic() {} };  // an oscillator's bits
    Object.assign(rp2040.peripherals, { 0x18000: device.ssi, 0x50000: device.channel, 0x40060: ring });
    rp2040.sram.set(flash.subarray(0, 256), STAGE2 - 0x20000000);
    rp2040.uart[0].onByte = show;
    const read = sio.readUint32.bind(sio), write = sio.writeUint32.bind(sio);
    sio.readUint32 = offset => offset == FIFO_STATUS ? READY : read(offset);  // of the other core, which never answers
    sio.writeUint32 = (offset, value) => offset == FIFO_WRITE ? undefined : write(offset, value);
    Object.assign(core, { SP: STAGE2, PC: STAGE2, LR: 0, VTOR: VECTORS, waiting: false });  // as the boot ROM leaves them
  }

  type(line) {
    this.typed.push(...new TextEncoder().encode(`${line}\r`));
  }

  run(instructions) {
    const { core, rp2040, clock, typed } = this, uart = rp2040.uart[0];
    for (let i = 0; i < instructions; i++) {
      let passed = 1;
      if (rp2040.readUint16(core.PC & ~1) == SEND_EVENT) core.PC += 2;  // which the emulator does not know
      else passed = core.executeInstruction();
      this.cycles += passed;
      clock.tick(passed * NANOSECONDS);
    }
    while (typed.length && !uart.rxFIFO.full) uart.feedByte(typed.shift());
    if (core.waiting) throw new Error("the firmware has halted");
    if (core.PC >>> 0 < FLASH_START) throw new Error("the boot ROM, which /bootsel leads to, is not emulated; boot the chip again");
  }
}

// A terminal at the chip's serial port, below the panel of stories.
function chipPanel(place, backend, about, files) {
  const screen = element("pre", { tabindex: 0, role: "region", "aria-label": "serial port of the emulated chip" }), report = reporting();
  const passed = element("p", { class: "note" });  // not announced by screen readers, as it changes all the time
  const line = Object.assign(element("input", { type: "text", maxlength: 200, disabled: true }), { value: about.prompt });
  const send = element("button", { class: "main", disabled: true }, "Send"), boot = button("Boot the chip", start);
  const decoder = new TextDecoder();
  let chip = null;

  function start() {
    report.say("");
    screen.replaceChildren();
    chip = new Chip(flashed(files), byte => {
      const text = decoder.decode(Uint8Array.of(byte), { stream: true }).replaceAll("\r", "");
      if (text) screen.append(text);
    });
    power(true);
    turn();
  }

  function power(on) {
    for (const each of [line, send]) each.disabled = !on;
    boot.disabled = on;
  }

  // A slice of time for the chip, then one for the page.
  function turn() {
    const until = performance.now() + 30;
    try {
      while (performance.now() < until) chip.run(20000);
    } catch (error) {
      power(false);
      return report.fail(error.message);
    }
    passed.textContent = `${(chip.cycles / 1e6).toFixed(0)} million cycles; the chip runs 125 million a second`;
    setTimeout(turn);
  }

  place.append(element("details", {}, element("summary", {}, "The firmware itself, on an emulated chip, slowly"),
    element("p", { class: "note" }, "The emulated flash holds what story.uf2 writes to that of a Raspberry Pi Pico. " +
      "A line is a prompt, or a setting such as /temperature 0 (greedy); /help lists them."),
    boot, screen,
    element("form", { submit: event => { event.preventDefault(); chip.type(line.value); } },
      labelled("a line for the chip", line), send),
    passed, ...report.parts));
}
