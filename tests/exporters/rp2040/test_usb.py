"""The serial port over USB, with rp2040js as the controller and as the host."""

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.exporters.rp2040.test_boot import story_uf2

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
