"""The command that measures GPU figures: what it keeps of parts that fail, what it writes, and a dry run of it."""

import json
import socket
import subprocess
import sys
import time

import psutil
import pytest

from tests import forked
from tests.forked import LONG, until
from tests.gpu import figures, tables
from tests.gpu.machine import Failed, Machine
from tests.stages import ROOT

RECORDS = [
    {
        "part": "cvrp tf32",
        "figures": {"examples_per_s": 2000.0, "targets_per_s": 2000.0, "targets_per_s, hardware.tf32=false": 1500.0},
    },
    {
        "part": "cvrp bf16",
        "figures": {"examples_per_s": 4321.0, "peak_memory_gib": 1.25, "model_flops_utilisation": 0.3},
    },
    {"part": "routing 20 bf16", "figures": {"examples_per_s": 900.0}},
    {"part": "routing 20 RL4CO", "figures": {"examples_per_s": 300.0}},
    {"part": "llava-1.5-7b", "failed": "out of memory"},
    {
        "part": "kernels",
        "figures": {
            "50": {
                "differs": "",
                "kernels": {"ms": 9.5, "gib": 0.25},
                "torch": {"ms": 62, "gib": 3.0},
                "kernels bf16": {"ms": 4.5, "gib": 0.25},
                "torch bf16": {"ms": 41, "gib": 2.0},
            }
        },
    },
    {"part": "kills", "figures": {"kills": 20, "same_bits": True}},
    {"part": "stages", "figures": {"cvrp": True, "bep": "exit status 2"}},
    {"part": "coins in many", "figures": {"coins": 32, "epochs": 2, "seconds": 70.2}},
]


@pytest.fixture
def machine(tmp_path, monkeypatch):
    shared = forked.start()
    monkeypatch.setattr(forked, "start_server", lambda _: shared)
    machine = Machine(str(tmp_path), str(tmp_path / "site"), tmp_path / "log", dry=True)
    machine.ends = time.monotonic() + LONG
    machine.run("-c", "")  # the server has imported
    machine.ends = time.monotonic() + 60
    return machine


def test_the_documents_get_the_figures_and_the_devices_name(tmp_path):
    path = tmp_path / "page.md"
    marks = "\n\n".join(f"<!-- gpu: {name} -->old<!-- end -->" for name in tables.TABLES)
    path.write_text(f"before\n\n{marks}\n\nafter\n")
    for _ in range(2):  # filling again changes nothing
        tables.fill([{**record, "device": "Imaginary GPU"} for record in RECORDS], [path])
        text = path.read_text()
        assert text.startswith("before\n\n<!-- gpu: throughput -->\nOn Imaginary GPU, by")
        assert text.endswith("<!-- end -->\n\nafter\n")
        assert "| `cvrp` | 1,500 | 2,000 | 4,321 | 1.25 | 0.3 |" in text
        assert "| CPU |" not in text  # of which nothing is known
        assert "| 20 | 900 | 300 (3.0x) |" in text
        assert "| 50 | yes | 9.5 | 62 | 4.5 | 41 | 0.25 | 3 |" in text
        assert "<!-- gpu: llava -->\nNo GPU has been measured yet.\n<!-- end -->" in text
        assert "| 20: yes |" in text
        assert "| cvrp yes, bep no |" in text
        assert "| `crypto`, all coins in one process | not measured |" in text
        assert "| `crypto`, a process for each coin, `hardware.stack=false` | 70 s for 32 coins x 2 epochs |" in text


def test_a_part_that_fails_is_recorded_and_the_next_one_measured(machine, tmp_path, monkeypatch):
    def parts(dry):
        return {
            "broken": (9, lambda machine: machine.run("-c", "raise SystemExit('no such thing')")),
            "slow": (1, lambda machine: machine.run("-c", "import time; time.sleep(60)")),
            "good": (9, lambda machine: {"answer": int(machine.run("-c", "print(6 * 7)"))}),
            "known": (9, lambda machine: {"answer": 0}),
        }

    monkeypatch.setattr(figures, "parts", parts)
    machine.dry, machine.device, out = False, lambda: "GPU", tmp_path / "out.jsonl"
    out.write_text(json.dumps({"part": "known", "device": "CPU"}) + "\n")
    figures.measure(machine, out, 60, None)
    known, broken, slow, good = map(json.loads, out.read_text().splitlines())
    assert "no such thing" in broken["failed"]
    assert "took too long" in slow["failed"]
    assert slow["seconds"] < 9
    assert (good["figures"], good["device"]) == ({"answer": 42}, "GPU")
    assert known["part"] == "known"


def test_commands_are_forks_of_one_interpreter_with_variables_of_their_own(machine):
    program = "import os; print(os.getppid(), os.getsid(0) == os.getpid(), os.environ.get('GREETING'))"
    one, other = machine.run("-c", program).split(), machine.run("-c", program, GREETING="hello").split()
    assert one == [other[0], "True", "None"]
    assert other[1:] == ["True", "hello"]


@pytest.mark.slow
def test_where_nothing_can_be_forked_interpreters_wait_in_reserve(tmp_path, monkeypatch, capsys):
    def ended(_):
        mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        its.close()
        return mine, subprocess.Popen(["true"])

    monkeypatch.setattr(forked, "start_server", ended)
    monkeypatch.setattr("tests.gpu.machine.RESERVE", 0)
    machine = Machine(str(tmp_path), str(tmp_path / "site"), tmp_path / "log", dry=True)
    machine.ends = time.monotonic() + LONG
    assert machine.run("-c", "import os; print(os.environ['GREETING'], os.getcwd())", GREETING="hello") == (
        f"hello {tmp_path}\n"
    )
    assert capsys.readouterr().out.startswith("nothing can be forked (")
    with pytest.raises(Failed, match=r"(?s)exit status 1.*no such thing"):
        machine.run("-c", "raise SystemExit('no such thing')")
    machine.close()


def test_coins_are_timed_in_one_process_and_in_a_process_each(machine, monkeypatch):
    ran = []
    monkeypatch.setattr(machine, "run", lambda *words: ran.append(words))
    for part in ("coins", "coins in many"):
        figures.parts(dry=True)[part][1](machine)
    trained = [words for words in ran if words[0].endswith("train.py")]
    assert ["hardware.stack=true" in words for words in trained] == [True, False]
    assert ["hardware.stack=false" in words for words in trained] == [False, True]
    assert len(ran) == 4  # the data of both are prepared before


def test_without_a_gpu_only_a_dry_run_is_made(machine, tmp_path):
    machine.dry, machine.device = False, lambda: "CPU"
    with pytest.raises(SystemExit, match="torch sees no GPU here; --dry-run"):
        figures.measure(machine, tmp_path / "out.jsonl", 60, None)


def test_what_a_command_started_ends_with_it(machine):
    sleeping = "[sys.executable, '-c', 'import time; time.sleep(99)']"
    process = machine.start(
        "-c",
        f"import subprocess, sys; print(subprocess.Popen({sleeping}).pid, flush=True); import time; time.sleep(99)",
    )
    assert until(lambda: process.out.seek(0) or process.out.read().endswith("\n"), LONG)
    process.out.seek(0)
    child = int(process.out.read())
    machine.kill(process)
    assert until(lambda: not psutil.pid_exists(child) or psutil.Process(child).status() == "zombie", LONG)


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """RL4CO and what it needs, from PyPI."""
    folder = tmp_path_factory.mktemp("wheels")
    words = ["--python", ".".join(map(str, sys.version_info[:2])), "--folder", str(folder)]
    subprocess.run([sys.executable, str(ROOT / "tests/gpu/wheels.py"), *words], check=True)
    return folder


@pytest.mark.slow
def test_a_dry_run_measures_every_part_on_the_cpu(tmp_path, wheels):
    out = tmp_path / "dry.jsonl"
    words = [str(ROOT / "tests/gpu/figures.py"), "--dry-run", "--out", str(out), "--wheels", str(wheels)]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    found = {entry["part"]: entry for entry in map(json.loads, out.read_text().splitlines())}
    assert found.keys() == figures.parts(dry=True).keys()
    assert {part for part, entry in found.items() if "failed" in entry} == {"two GPUs"}, found
    for part in ("routing 20 RL4CO", "routing 20 RL4CO fp32", "routing 20 bf16"):
        assert found[part]["figures"]["examples_per_s"] > 0
    assert found["kernels"]["figures"]["6"]["differs"] == ""
    assert found["same bits"]["figures"] == {"cvrp": True}
    assert found["kills"]["figures"]["same_bits"]


def test_the_first_parts_show_exactness_kernels_and_all_workloads_in_the_first_half():
    found = figures.parts(dry=False)
    first = list(found)[:7]
    assert first == ["same bits", "kernels", *(f"{name} bf16" for name in figures.WORKLOADS)]
