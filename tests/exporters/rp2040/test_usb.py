"""The serial port over USB, with a host of our own for both chips, and with rp2040js as controller and host."""

import re
import shutil
import struct
import subprocess
from collections.abc import Callable, Generator, Sequence
from pathlib import Path

import pytest

from exporters.rp2040.settings import Settings
from tests.exporters.rp2040.chip import Chip
from tests.exporters.rp2040.flash import IDENTITY
from tests.exporters.rp2040.pico2 import Pico2
from tests.exporters.rp2040.test_boot import CYCLES, story_uf2
from tests.exporters.rp2040.test_pico2 import smallest

FOLDER = Path(__file__).parent
LINES = ["/temperature 0.9", "/seed 1", "/ids on", "/tokens 40", "The cat", "A dog", "The cat\rA dog", "/ids off"]


@pytest.fixture(scope="module")
def uf2(tmp_path_factory) -> Path:
    assert shutil.which("node"), "apt-get install nodejs npm"
    assert (FOLDER / "node_modules/rp2040js").is_dir(), f"npm ci --prefix {FOLDER}"
    path = tmp_path_factory.mktemp("usb") / "story.uf2"
    path.write_bytes(story_uf2())
    return path


def typed(uf2: Path, *options: str, lines: Sequence[str] = LINES) -> tuple[str, int]:
    """(what the terminal shows, cycles)."""
    command = ["node", str(FOLDER / "run.mjs"), str(uf2), "--seconds", "60", *options, *lines]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.replace("\r", ""), int(done.stderr.split("\n")[1].split()[0])


def told(output: str) -> list[str]:
    return re.findall(r"^\d+(?: \d+)+$", output, re.MULTILINE)


CONTROLLER = 0x50110000
ADDRESS, SIE_CONTROL, HAPPENED, DONE, MUXING = (CONTROLLER + at for at in (0, 0x4C, 0x50, 0x58, 0x74))
PULL_UP, SETUP, RESET, IDLE = 1 << 16, 1 << 17, 1 << 19, 1 << 16 | 1 << 2  # idle: connected, the line's state J
FULL, SECOND, STALLED, AVAILABLE = 1 << 15, 1 << 13, 1 << 11, 1 << 10  # of a buffer; SECOND: it is DATA1
SERIAL, AT_115200_8N1 = IDENTITY.hex().upper(), struct.pack("<I3B", 115_200, 0, 0, 8)
Steps = Generator[None, None, object]  # of a host; at each the driver polls once


class Host:
    """Controller and host: `script` says what the host does. Mixed into a chip, whose UART nobody types at.

    It reads the port as the drivers of computers do, 128 bytes at once: less is heard after a packet that is not full.
    """

    def __init__(self, script: Callable[["Host"], Steps], uf2: bytes):
        super().__init__(uf2, [])
        self.steps, self.muxed = script(self), []
        self.happened = self.done = 0
        self.heard, self.unheard = b"", b""
        self.sizes: list[int] = []  # of packets heard
        self.toggles = {0: 0, 1: 0}  # of endpoint 2, in and out

    def read(self, address: int) -> int:
        if address == HAPPENED:
            self._go_on()
            return self.happened | IDLE
        return self.done if address == DONE else super().read(address)

    def _go_on(self) -> None:
        try:
            next(self.steps)
        except StopIteration:
            self.finished = True
            self.cores[0].machine.emu_stop()
        except AssertionError as error:
            self.stop(f"the host: {error}")

    def write(self, address: int, value: int) -> None:
        if address == HAPPENED:
            self.happened &= ~value
        elif address == DONE:
            self.done &= ~value
        else:
            self.muxed += [value] * (address == MUXING)
            super().write(address, value)

    def _type(self) -> None:
        pass

    def word(self, place: int, value: int | None = None) -> int:
        """A word of the controller's memory, which is set to a value if there is one."""
        if value is not None:
            struct.pack_into("<I", self.dpram, place, value)
        return struct.unpack_from("<I", self.dpram, place)[0]

    def armed(self, number: int, out: int) -> bool:
        return bool(self.word(0x80 + 8 * number + 4 * out) & AVAILABLE)

    def packet(self, number: int, out: int, toggle: int, data: bytes = b"") -> Generator[None, None, bytes | None]:
        """Move a packet, for which the driver is waited for; None if the endpoint is halted."""
        place = 0x80 + 8 * number + 4 * out
        for _ in range(3000):
            control = self.word(place)
            if control & STALLED:
                return None
            if control & AVAILABLE:
                break
            yield
        else:
            raise AssertionError(f"endpoint {number} {'out' if out else 'in'} is never armed")
        assert bool(control & FULL) != out
        assert bool(control & SECOND) == toggle, f"endpoint {number}: DATA{1 - toggle} in place of DATA{toggle}"
        start = self.word(8 * number + 4 * out) & 0xFC0 if number else 0x100
        size = control & 0x3FF
        if out:
            assert len(data) <= size
            self.dpram[start : start + len(data)] = list(data)
            control = control & ~0x3FF | FULL | len(data)
        else:
            data = bytes(self.dpram[start : start + size])
            control &= ~FULL
        self.word(place, control & ~AVAILABLE)
        self.done |= 1 << (2 * number + out)
        yield
        return data

    def ask(self, request: str, data: bytes = b"") -> Generator[None, None, bytes | None]:
        """A control transfer by its setup packet in hexadecimal digits; what is answered, or None for a refusal."""
        setup = bytes.fromhex(request)
        self.dpram[0:8] = list(setup)
        self.happened |= SETUP
        yield
        length, toggle, answer = int.from_bytes(setup[6:], "little"), 1, b""
        if not setup[0] >> 7:
            if length and (yield from self.packet(0, 1, 1, data)) is None:
                return None
            return (yield from self.packet(0, 0, 1))
        while len(answer) < length:
            part = yield from self.packet(0, 0, toggle)
            if part is None:
                return None
            answer, toggle = answer + part, 1 - toggle
            if len(part) < 64:
                break
        assert (yield from self.packet(0, 1, 1)) == b""
        return answer

    def reset(self) -> Steps:
        self.happened |= RESET
        yield
        assert self.happened & RESET == 0

    def open(self) -> Steps:
        """Set the device up and open a terminal."""
        yield from self.reset()
        assert (yield from self.ask("0005070000000000")) == b""
        assert self.registers[ADDRESS] == 7
        yield from self.configure()
        yield from self.terminal(1)

    def configure(self) -> Steps:
        assert (yield from self.ask("0009010000000000")) == b""
        self.toggles = {0: 0, 1: 0}

    def terminal(self, there: int) -> Steps:
        assert (yield from self.ask(f"21220{there}0000000000")) == b""

    def listen(self) -> Steps:
        """Take a packet."""
        part = yield from self.packet(2, 0, self.toggles[0])
        assert part is not None
        self.toggles[0] ^= 1
        self.sizes.append(len(part))
        self.unheard += part
        if len(part) < 64 or len(self.unheard) == 128:
            self.heard, self.unheard = self.heard + self.unheard, b""

    def hear(self, end: str) -> Steps:
        """Listen until the text heard ends so."""
        while not self.heard.replace(b"\r", b"").endswith(end.encode()):
            yield from self.listen()

    def send(self, data: bytes) -> Steps:
        """Send a packet, and take what comes until there is room for it."""
        for _ in range(3000):
            if self.armed(2, 1):
                break
            yield from self.listen() if self.armed(2, 0) else iter([None])
        assert (yield from self.packet(2, 1, self.toggles[1], data)) is not None
        self.toggles[1] ^= 1


class Plugged(Host, Chip):
    pass


class Plugged2(Host, Pico2):
    pass


BOTH = pytest.mark.parametrize("board", [Plugged, Plugged2])


def ran(script: Callable[[Host], Steps], board: type[Host] = Plugged, uf2: bytes = b"") -> Host:
    chip = board(script, uf2 or (story_uf2() if board is Plugged else smallest()))
    chip.run(60)
    return chip


@BOTH
def test_a_host_finds_a_serial_port_and_its_terminal_hears_what_the_uart_says(board):
    found = {}

    def script(host: Host) -> Steps:
        assert host.registers[SIE_CONTROL] & PULL_UP  # without which no host knows that it is there
        yield from host.reset()
        found["device"] = yield from host.ask("8006000100004000")
        yield from host.reset()
        addressed = host.ask("0005070000000000")
        yield next(addressed)
        assert host.armed(0, 0)
        assert host.registers[ADDRESS] == 0  # until the host has heard that it was understood
        assert (yield from addressed) == b""
        assert host.registers[ADDRESS] == 7
        for size in ("0900", "4000", "4b00", "ff00"):  # as different systems ask
            found[size] = yield from host.ask(f"800600020000{size}")
        for number in ("01", "02", "03"):
            found[number] = yield from host.ask(f"8006{number}030904ff00")
        assert (yield from host.ask("8006000600000a00")) is None  # of a faster device
        assert (yield from host.ask("a121000000000700")) == AT_115200_8N1
        yield from host.configure()
        assert (yield from host.ask("2120000000000700", b"\x80\x25\0\0\0\0\7")) == b""
        assert (yield from host.ask("a121000000000700")) == b"\x80\x25\0\0\0\0\7"
        yield from host.terminal(1)
        yield from host.hear("/help lists the settings\n> ")
        for part in (b"/tok", b"", b"ens 5\r"):  # an empty packet too
            yield from host.send(part)
        yield from host.hear("tokens: 5\n> ")
        yield from host.send(b"The cat\r")
        yield from host.hear("]\n> ")

    chip = ran(script, board)
    assert found["device"][:4] == b"\x12\1\0\2"
    assert struct.unpack("<2H", found["device"][8:12]) == (0x2E8A, 0x000A)
    whole = found["ff00"]
    assert [whole[:9], whole[:64], whole] == [found["0900"], found["4000"], found["4b00"]]
    parts = []  # by the size that each begins with
    while whole:
        parts.append(whole[1 : whole[0]])
        whole = whole[whole[0] :]
    assert struct.unpack_from("<HB", parts[0], 1) == (len(found["ff00"]), 2)
    interfaces = [part for part in parts if part[0] == 4]
    assert [(part[1], part[3], part[4], part[5]) for part in interfaces] == [(0, 1, 2, 2), (1, 2, 10, 0)]
    endpoints = {part[1]: struct.unpack_from("<BH", part, 2) for part in parts if part[0] == 5}
    assert endpoints == {0x81: (3, 8), 0x02: (2, 64), 0x82: (2, 64)}  # 2: bulk
    assert b"\x24\6\0\1" in parts  # interface 0 speaks for interface 1
    assert [found[number][2:].decode("utf-16-le") for number in ("02", "03")] == ["Story teller", SERIAL]
    heard = chip.heard.decode().replace("\r\n", "\n")
    assert heard[heard.index("> /tok") :] == chip.text[chip.text.index("> /tok") :]


def test_packets_begin_anew_where_the_host_begins_anew():
    def told(host: Host, number: int) -> Steps:
        yield from host.send(f"/tokens {number}\r".encode())
        yield from host.hear(f"\ntokens: {number}\n> ")

    def script(host: Host) -> Steps:
        yield from host.open()
        yield from told(host, 1)
        requests = ["0009010000000000"], ["010b000001000000"], ["0201000002000000", "0201000082000000"]
        for number, anew in enumerate(requests, start=2):  # SET_CONFIGURATION, SET_INTERFACE, CLEAR_FEATURE
            for toggle in host.toggles.values():
                if not toggle:
                    yield from host.send(b"x")  # whose echo turns the other one
                    yield from host.listen()
            unheard = host.packet(2, 1, host.toggles[1], b"unheard\r")
            next(unheard)  # which the driver learns of together with the request
            for request in anew:
                assert (yield from host.ask(request)) == b""
            host.toggles = {0: 0, 1: 0}
            yield from host.terminal(1)
            yield from host.send(b"\3")
            yield from told(host, number)
        yield from host.send(b"/help\r")
        yield from host.listen()
        yield from host.open()  # a cable was pulled while the board spoke
        yield from told(host, 5)

    text = ran(script).text
    assert "unheard" not in text
    assert "/help              this\n> \nTiny transformer" in text  # which the UART hears to its end


def test_what_ends_with_a_full_packet_is_heard_to_its_end():
    def script(host: Host) -> Steps:
        yield from host.open()
        yield from host.hear("/help lists the settings\n> ")
        yield from host.send(b"/settings\r")
        while not host.heard.endswith(b"xxx\r\n> "):
            for _ in range(5):  # so that packets fill
                yield
            yield from host.listen()

    longer = 0
    for _ in range(2):
        story = story_uf2(Settings(temperature=0, prompt="x" * (10 + longer)))
        sizes = ran(script, uf2=story).sizes
        longer = 128 - sizes[-1]
    assert sizes[-4:] == [64, 64, 64, 0]  # of which the host would not give the third before a fourth


def test_no_packet_is_lost_on_a_host_that_reads_slowly_and_the_next_terminal_hears_nothing_of_the_last_one():
    def script(host: Host) -> Steps:
        yield from host.open()
        yield from host.hear("/help lists the settings\n> ")
        yield from host.send(b"/help\r")
        while not host.heard.endswith(b"this\r\n> "):
            for _ in range(5):
                yield
            yield from host.listen()
        slowly = host.heard.decode().replace("\r\n", "\n")
        assert slowly.endswith(host.text[host.text.index("> /help\n") :])
        yield from host.send(b"/help\r")
        while host.sizes[-1] < 64:
            yield from host.listen()
        yield from host.terminal(0)
        while not host.text.endswith("this\n> "):
            yield
        heard = len(host.heard + host.unheard)
        yield from host.terminal(1)
        yield from host.hear("/help lists the settings\n> ")
        assert host.heard[heard:].index(b"\r\nTiny transformer") <= 64  # what was on its way

    ran(script)


def test_no_packet_is_offered_at_the_end_of_a_frame():
    """Erratum RP2040-E15; no frame begins here but at 0."""

    def script(host: Host) -> Steps:
        yield from host.open()
        yield from host.hear("/help lists the settings\n> ")
        for microseconds, offered in ((790, True), (810, False), (990, False), (1010, True)):
            host.registers[CYCLES] = -125 * microseconds & 0xFFFFFF
            yield from host.send(b"x")
            for _ in range(20):
                yield
            assert host.armed(2, 0) is offered
            if offered:
                yield from host.listen()

    ran(script)


@pytest.mark.parametrize("revision", [1, 2])
def test_the_first_revisions_are_led_out_of_a_reset(revision):
    """Erratum RP2040-E5."""
    pin = {0x4001407C: 0x1F, 0x4001C040: 0x56}  # of GPIO15: its function and its pad

    def script(host: Host) -> Steps:
        host.registers |= {0x40000000: revision << 28, **pin}
        yield from host.open()

    chip = ran(script)
    assert chip.muxed == ([0b1001, 0b1100, 0b1001] if revision == 1 else [0b1001])
    assert {address: chip.registers[address] for address in pin} == pin


@pytest.mark.slow
def test_a_terminal_on_usb_is_greeted_and_hears_what_one_on_the_uart_hears(uf2):
    (by_uart, _), (by_usb, _) = typed(uf2), typed(uf2, "--usb")
    assert "Tiny transformer: vocabulary 32" in by_usb
    assert len(told(by_uart)) == 4
    assert told(by_usb) == told(by_uart)


@pytest.mark.slow
def test_the_host_waits_with_what_is_pasted_in_a_story_and_nothing_is_lost(uf2):
    pasted = "The cat\r" + "\r".join(["/ids on"] * 100)  # 800 bytes, where 512 are kept
    output, _ = typed(uf2, "--usb", lines=[pasted, *["/ids off"] * 120])  # a line for each prompt of the others
    assert output.count("> /ids on\nids: on\n") == 100


@pytest.mark.slow
def test_a_terminal_that_opens_late_hears_why_nothing_starts(uf2, tmp_path):
    data = bytearray(uf2.read_bytes())
    data[512 * 258 + 40] ^= 1  # the third page of the model
    (tmp_path / "story.uf2").write_bytes(data)
    command = ["node", str(FOLDER / "run.mjs"), str(tmp_path / "story.uf2"), "--cycles", "120000000", "--usb"]
    done = subprocess.run([*command, ""], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "Cannot start: the model file is damaged: its CRC differs." in done.stdout


@pytest.mark.slow
def test_a_chip_that_hangs_in_a_story_is_restarted_within_a_second(uf2):
    _, cycles = typed(uf2)
    output, _ = typed(uf2, "--hang", str(int(0.8 * cycles)))
    assert output.count("Tiny transformer: vocabulary 32") == 2
    assert output.count("The chip hung and was restarted by its watchdog.") == 1


@pytest.mark.slow
def test_a_cable_that_is_pulled_costs_at_most_what_was_on_its_way(uf2):
    _, cycles = typed(uf2, "--usb")
    for share in (0.6, 0.75, 0.9):
        output, _ = typed(uf2, "--usb", "--replug", str(int(share * cycles)))
        assert output.count("Tiny transformer: vocabulary 32") == 2
        assert output.endswith("> /ids off\nids: off\n> ")
