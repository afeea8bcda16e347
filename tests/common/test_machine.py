"""Facts of this machine, also where the system lacks the calls that Linux has."""

import builtins
import os
import platform
import subprocess
import sys
import types
from pathlib import Path

import psutil
import pytest

from common import machine

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch, tmp_path):
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    monkeypatch.setattr(machine, "GROUPS", tmp_path / "none")  # the tests may run in a container with a quota


def allow(monkeypatch, num_cores):
    """Let this process run on that many cores."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(num_cores)), raising=False)


def test_cores_are_those_the_process_may_run_on(monkeypatch):
    allow(monkeypatch, 6)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    assert machine.cores() == 6


@pytest.mark.parametrize(
    ("words", "typed", "alone"),
    [([], {}, True), ([], {"OMP_NUM_THREADS": "1"}, False), (["--num_cpu_threads_per_process=1"], {}, False)],
)
def test_one_thread_that_was_typed_before_the_launcher_is_no_default_of_it(tmp_path, words, typed, alone):
    answer = f"{sys.executable} -c 'from common.machine import *; print(launched_on_one_thread())'"
    launcher = tmp_path / "accelerate"
    variables = {"ACCELERATE_MIXED_PRECISION": "no", "OMP_NUM_THREADS": "1"}
    launcher.write_text(f"import os\nos.environ |= {variables}\nos.system({answer!r})\n")
    clean = {name: value for name, value in os.environ.items() if name not in variables}
    done = subprocess.run([sys.executable, launcher, *words], env=clean | typed, cwd=ROOT, stdout=subprocess.PIPE)
    assert done.stdout.decode().strip() == str(alone)


@pytest.mark.parametrize(("processes", "share"), [("1", 6), ("4", 1), ("8", 1)])
def test_the_processes_of_a_launcher_share_the_cores(monkeypatch, processes, share):
    allow(monkeypatch, 6)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", processes)
    assert machine.cores() == share


@pytest.mark.parametrize(
    ("files", "share"),
    [
        ({"cpu.max": "150000 100000"}, 2),
        ({"cpu.max": "max 100000"}, 6),
        ({"cpu.max": "10000 100000"}, 1),
        ({"cpu.max": "6400000 100000"}, 6),
        ({"cpu/cpu.cfs_quota_us": "200000", "cpu/cpu.cfs_period_us": "100000"}, 2),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 6),
        ({"cpu.max": ""}, 6),
        ({"job_7/step_0/cpu.max": "max 100000", "job_7/cpu.max": "300000 100000", "other/cpu.max": "100000 100000"}, 3),
        ({"cpu/slice/cpu.cfs_quota_us": "200000", "cpu/slice/cpu.cfs_period_us": "100000"}, 2),
        ({}, 6),
    ],
)
def test_cores_are_no_more_than_control_groups_have_time_for(monkeypatch, tmp_path, files, share):
    allow(monkeypatch, 6)
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n")
    (tmp_path / "own").write_text("9:name=systemd:/x\n3:cpu,cpuacct:/slice/app:1\n0::/job_7/step_0\n")
    monkeypatch.setattr(machine, "GROUPS", tmp_path)
    monkeypatch.setattr(machine, "MEMBERSHIP", tmp_path / "own")
    assert machine.cores() == share
    monkeypatch.setenv("GOMP_SPINCOUNT", "1000")
    monkeypatch.setenv("OMP_NUM_THREADS", "5")  # as typed
    machine.yield_while_waiting()
    assert os.environ["OMP_NUM_THREADS"] == "5"
    monkeypatch.delenv("OMP_NUM_THREADS")
    machine.yield_while_waiting()
    assert os.environ.get("OMP_NUM_THREADS") == (str(share) if share < 6 else None)


def test_without_affinity_every_core_counts(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)  # as on macOS
    monkeypatch.setattr(os, "cpu_count", lambda: 10)
    assert machine.cores() == 10
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert machine.cores() == 1


@pytest.mark.parametrize(
    ("given", "count"), [({}, "1000"), ({"OMP_WAIT_POLICY": "active"}, None), ({"GOMP_SPINCOUNT": "20"}, "20")]
)
def test_threads_that_wait_soon_sleep_unless_the_user_says_otherwise(monkeypatch, given, count):
    monkeypatch.setattr(os, "environ", dict(given))
    machine.yield_while_waiting()
    assert os.environ == {**given, **({"GOMP_SPINCOUNT": count} if count else {})}


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="what is set is glibc's")
def test_large_blocks_come_from_memory_that_was_freed():
    text = """
import resource, sys
from common import machine
sys.argv[1] == "kept" and machine.keep_freed_memory()
faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
b"1" * 64_000_000
before = faults()
for byte in range(5):
    bytes([byte]) * 64_000_000
print(faults() - before)
"""
    kept, returned = (
        int(subprocess.check_output([sys.executable, "-c", text, how], cwd=ROOT)) for how in ("kept", "returned")
    )
    assert 10 * kept < returned  # a page at a time, of 4 kB or 2 MB


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="what is set is glibc's")
def test_more_than_two_gigabytes_are_kept_too():
    text = """
import resource
from common import machine
machine.keep_freed_memory()
faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for attempt in range(3):
    before = faults()
    blocks = [b"1" * 64_000_000 for _ in range(40)]
    del blocks
    machine.return_freed_memory()
    print(faults() - before)
"""
    first, *later = map(int, subprocess.check_output([sys.executable, "-c", text], cwd=ROOT).split())
    assert 10 * max(later) < first


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="what is set is glibc's")
def test_memory_that_was_freed_goes_back_once_it_is_much_more_than_a_batch_needs():
    text = """
from common import machine
machine.keep_freed_memory()
for count in (101, 101, 301, 301, 301):
    blocks = [b"1" * 1_000_000 for _ in range(count)]
    pins = blocks[::100]  # between which memory is free, and not at the end of all
    del blocks
    machine.return_freed_memory(2**27)
    print(machine.resident_bytes())
"""
    found = map(int, subprocess.check_output([sys.executable, "-c", text], cwd=ROOT).split())
    assert [size > 100_000_000 for size in found] == [True, True, False, True, True]


def test_the_processor_has_a_name():
    assert machine.processor()


@pytest.mark.parametrize(
    ("vendor", "flags", "slow"),
    [
        ("AuthenticAMD", "avx2 avx512f avx512bw sha_ni", True),
        ("AuthenticAMD", "avx2 sha_ni", False),
        ("AuthenticAMD", "avx2 avx512bw amx_tile amx_bf16", False),  # where oneDNN would round to bfloat16
        ("GenuineIntel", "avx2 avx512bw sha_ni", False),
    ],
)
def test_mkl_is_slow_on_amds_processors_with_avx512(monkeypatch, vendor, flags, slow):
    lines = f"processor\t: 0\nvendor_id\t: {vendor}\nflags\t\t: fpu {flags}\n\nprocessor\t: 1\n"
    monkeypatch.setattr(machine.Path, "read_text", lambda path: lines)
    assert machine.mkl_is_slow() == slow


def test_without_proc_the_platform_names_the_processor(monkeypatch):
    def absent(path):
        raise FileNotFoundError(path)

    monkeypatch.setattr(Path, "read_text", absent)
    monkeypatch.setattr(platform, "processor", lambda: "arm")
    assert machine.processor() == "arm"


def test_peak_memory_holds_what_was_allocated():
    size = 64 * 2**20
    before = psutil.Process().memory_info().rss
    data = bytearray(b"1") * size  # written, so that it is resident
    assert machine.peak_memory_bytes() >= before + len(data) // 2
    assert machine.peak_memory_bytes() < psutil.virtual_memory().total


@pytest.mark.parametrize(("system", "unit"), [("linux", 1024), ("darwin", 1)])
def test_peak_memory_is_in_bytes_whatever_the_kernel_counts(monkeypatch, system, unit):
    usage = types.SimpleNamespace(ru_maxrss=3000)
    module = types.SimpleNamespace(getrusage=lambda who: usage, RUSAGE_SELF=0)
    monkeypatch.setattr(machine, "resource", module)
    monkeypatch.setattr(sys, "platform", system)
    assert machine.peak_memory_bytes() == 3000 * unit


def test_the_module_is_imported_without_psutil(monkeypatch):
    real = builtins.__import__

    def refuse(name, *args, **kwargs):
        assert name != "psutil"
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    exec(compile(Path(machine.__file__).read_text(), machine.__file__, "exec"), {"__name__": "machine"})
