"""The routing kernels agree with torch and native code, fit an A100, H100 and B200, and are used only if they agree."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from models.routing import kernels, native
from tests.gpu import kernels_on_cpu
from tests.models.routing.policies import make_instances, make_noise, make_policy
from tests.stages import ROOT

INTEGERS = ("tours", "nodes", "depth", "heads", "steps", "begin")
POINTERS = {"actions": "*i64", "first": "*i64", "ends": "*i8"}  # the others are of float32
MOST_SPILLED = 768  # bytes of a thread's stack, with four warps; with eight and 360 an H100 was slower
MOST_SHARED = 96 * 1024  # bytes, of 164 on the smallest of the three


@pytest.fixture
def in_place_of_a_gpu(monkeypatch):
    """Let the CPU use kernels, whose places native code takes."""
    monkeypatch.setattr(kernels, "DEVICES", {"cpu"})
    monkeypatch.setattr(kernels, "COMPARED", 2)
    monkeypatch.setattr(native, "decodes", lambda *_: False)
    kernels_on_cpu.install()
    kernels.trusted.cache_clear()
    yield monkeypatch
    kernels.trusted.cache_clear()


def test_kernels_that_agree_with_torch_build_score_and_learn(in_place_of_a_gpu, capsys):
    policy, instances, noise = make_policy("gt"), make_instances(3, 6), make_noise(3, 6, 6)
    found = policy(instances, 6, noise)
    slopes = torch.autograd.grad(found.log_prob.sum(), policy.decoder.node.weight)[0]
    assert kernels.trusted.cache_info().currsize == 1
    assert capsys.readouterr().err == ""
    in_place_of_a_gpu.setattr(kernels, "DEVICES", set())
    expected = policy(instances, 6, noise)
    assert torch.equal(found.actions[..., : expected.actions.shape[2]], expected.actions)
    by_torch = torch.autograd.grad(expected.log_prob.sum(), policy.decoder.node.weight)[0]
    torch.testing.assert_close(slopes, by_torch, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("broken", ["build_tours", "score_tours"])
def test_kernels_that_differ_from_torch_are_not_used_and_a_line_says_so(in_place_of_a_gpu, capsys, broken):
    right = getattr(kernels_on_cpu, broken)

    def wrong(tensors, *others):
        right([tensors[0] + 0.3, *tensors[1:]], *others)

    kernels_on_cpu.register(**{broken: wrong})
    policy, instances, noise = make_policy("gt"), make_instances(3, 6), make_noise(3, 6, 6)
    for _ in range(2):
        found = policy(instances, 6, noise)
    line = capsys.readouterr().err
    reason = "drawn tours differ" if broken == "build_tours" else "log-probabilities differ"
    assert re.fullmatch(f"the kernels for routes are not used, torch computes: {reason}.*\n", line)
    in_place_of_a_gpu.setattr(kernels, "DEVICES", set())
    assert torch.equal(found.actions, policy(instances, 6, noise).actions)


def test_kernels_that_fail_are_not_used_and_a_line_says_so(in_place_of_a_gpu, capsys):
    def failing(*_):
        raise RuntimeError("PTX of another\ntime")

    kernels_on_cpu.register(build_tours=failing)
    assert not kernels.usable(make_policy("gt").decoder, make_instances(1, 6))
    assert capsys.readouterr().err.endswith("torch computes: RuntimeError: PTX of another time\n")


def test_neither_a_cpu_nor_states_that_change_use_kernels():
    assert not kernels.usable(make_policy("gt").decoder, make_instances(1, 6))
    assert not kernels.usable(make_policy("dgt").decoder, make_instances(1, 6))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("customers", "tours", "kind"),
    [
        *((20, 7, "gt"), (50, 5, "gat")),  # interpreted, a tour takes a second or two
        *(pytest.param(*sizes, marks=pytest.mark.exhaustive) for sizes in ((20, 20, "gt"), (100, 8, "gt"))),
    ],
)
def test_interpreted_kernels_give_the_tours_and_gradients_of_torch_and_native_code(tmp_path, customers, tours, kind):
    pytest.importorskip("triton")
    script = ROOT / "tests/models/routing/interpreted.py"
    words = [sys.executable, str(script), str(customers), str(tours), kind]
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.stdout == "equal\n", done.stderr


def resources(name, capability, customers, precision, drawn=True, ends=False, gradients=True):
    """Compile a kernel for heads of 16 channels; returns registers and bytes of stack, of a thread, and shared ones."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from models.routing.kernels import tours

    kernel = getattr(tours, name)
    flags = {"DRAWN": drawn} if name == "build_tours" else {"HAS_ENDS": ends, "GRADIENTS": gradients}
    constants = {**kernels.padded(customers + 1, 16), **flags, "PRECISION": precision}
    options = {key: constants.pop(key) for key in ("num_warps", "num_stages", "enable_fp_fusion")}
    absent = {"uniform": drawn, "ends": ends, "upstream": gradients, "log_prob": not gradients}
    absent |= dict.fromkeys(("d_states", "d_load", "d_distance"), gradients)
    absent = {key: None for key, given in absent.items() if not given and key in kernel.arg_names}
    if name == "build_tours":
        absent.pop("log_prob", None)
    constants |= absent
    signature, attributes = {}, {}
    for place, argument in enumerate(kernel.arg_names):
        plain = "i32" if argument in INTEGERS else POINTERS.get(argument, "*fp32")
        signature[argument] = "constexpr" if argument in constants else plain
        if argument not in constants and (plain != "i32" or argument == "depth"):
            attributes[place,] = [["tt.divisibility", 16]]
    source = ASTSource(kernel, signature, constants, attributes)
    compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    binary = Path(os.environ["TRITON_CACHE_DIR"]) / "kernel.cubin"
    binary.write_bytes(compiled.asm["cubin"])
    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    said = subprocess.run([tool, "--dump-resource-usage", binary], capture_output=True, text=True, check=True).stdout
    registers, stack = map(int, re.search(r"REG:(\d+) STACK:(\d+)", said).groups())
    return registers, stack, compiled.metadata.shared


@pytest.mark.slow
@pytest.mark.parametrize("capability", [80, 90, 100])
def test_kernels_compile_and_keep_what_they_hold_in_registers(tmp_path, monkeypatch, capability):
    pytest.importorskip("triton")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    cases = [("build_tours", 100, "ieee", {}), ("score_tours", 100, "ieee", {})]
    if capability == 90:
        cases += [(name, customers, "tf32", {}) for name in ("build_tours", "score_tours") for customers in (20, 100)]
        cases += [("build_tours", 50, "ieee", {"drawn": False})]
        cases += [("score_tours", 50, "ieee", {"ends": True}), ("score_tours", 20, "ieee", {"gradients": False})]
    for name, customers, precision, flags in cases:
        registers, stack, shared = resources(name, capability, customers, precision, **flags)
        print(f"sm_{capability} {name} {customers} {precision} {flags}: {registers}, {stack}, {shared}")
        assert registers <= 255
        assert stack <= (MOST_SPILLED if name == "score_tours" else 0)
        assert shared <= MOST_SHARED
