"""The doctor on machines in several states: the real command, then the checks that need hardware this one lacks."""

import re
import types

import fake_driver
import pytest
import torch

from common.gpu import GPU, Driver
from pipelines.doctor import diagnosis
from pipelines.doctor.diagnosis import cuda_build, has_kernels

DOCTOR = ["pipelines/doctor.py"]


def test_a_healthy_cpu_machine_is_ready(tmp_path):
    done = fake_driver.run(DOCTOR, fake_driver.none(tmp_path), CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("ready to train\n")
    assert done.stderr == ""
    for line in (
        r"^ok +Python 3",
        r"^(ok|warning) .*requirements.txt",
        r"GB free",
        rf"^ok +torch {re.escape(torch.__version__)}",
        r"^ok +cpu: computes in fp32",
        r"^ok +cpu: forward, backward and optimizer step",
        r"^ok +Accelerate .*device cpu, 1 process, mixed precision no",
        r"no default Accelerate config",
    ):
        assert re.search(line, done.stdout, flags=re.MULTILINE), f"{line} in\n{done.stdout}"


@pytest.mark.skipif(torch.version.cuda is not None, reason="this torch is no CPU-only build")
def test_a_gpu_that_a_cpu_only_torch_would_ignore_is_a_problem_with_the_command(tmp_path):
    libraries = fake_driver.build(tmp_path)
    config = tmp_path / "hub" / "accelerate" / "default_config.yaml"
    config.parent.mkdir(parents=True)
    config.write_text("distributed_type: MULTI_GPU\nnum_processes: 4\nmixed_precision: bf16\n")
    done = fake_driver.run(DOCTOR, libraries, FAKE_NVML_GPUS="2")
    assert done.returncode == 1
    assert "sees Imaginary GPU 0, Imaginary GPU 1, but torch" in done.stdout
    version = torch.__version__.partition("+")[0]
    command = f"pip install torch=={version}+cu126 --index-url https://download.pytorch.org/whl/cu126\n"
    assert command in done.stdout
    assert "num_processes 4, mixed_precision bf16: more processes than GPUs (0 per machine)\n" in done.stdout
    assert done.stdout.endswith("not ready, 2 to mend: type what stands after ->, then run this again\n")


def test_the_doctor_takes_no_arguments(tmp_path):
    done = fake_driver.run([*DOCTOR, "--fast"], tmp_path)
    assert done.returncode == 2
    assert "python pipelines/doctor.py" in done.stdout


def test_a_machine_without_torch_is_told_what_to_install(tmp_path):
    # -S leaves out site-packages: no package is there at all.
    done = fake_driver.run(["-S", *DOCTOR], tmp_path)
    assert done.returncode == 1
    assert "not installed: torch==" in done.stdout
    assert "torch cannot be imported" in done.stdout
    assert "-m pip install -r requirements.txt" in done.stdout
    assert done.stderr == ""


@pytest.fixture
def machine(monkeypatch):
    """Set up what driver and torch say: machine(cuda="12.6", driver=Driver(...), gpus=1, fault=None)."""

    def pretend(cuda, driver=None, fault=None, plugged=False):
        num_gpus = len(driver.capabilities) if driver else 0
        gpus = [GPU(f"GPU {index}", 0, 0, 2**34, 40, 50) for index in range(num_gpus)]
        monkeypatch.setattr(torch.version, "cuda", cuda)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        monkeypatch.setattr(diagnosis, "read_driver", lambda: driver)
        monkeypatch.setattr(diagnosis, "read_gpus", lambda: gpus)
        monkeypatch.setattr(diagnosis, "driver_fault", lambda: fault)
        monkeypatch.setattr(diagnosis, "_nvidia_card", lambda: plugged)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    return pretend


def only(findings):
    [finding] = findings
    return finding


def test_gpus_hidden_by_the_environment_are_a_warning(machine, monkeypatch):
    machine("12.6", Driver("550", (12, 4), ((8, 0),)))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    finding = only(diagnosis.check_gpus())
    assert finding.level == "warning"
    assert "CUDA_VISIBLE_DEVICES='' hides it from torch" in finding.what
    assert finding.remedy == "unset CUDA_VISIBLE_DEVICES"


@pytest.mark.parametrize(
    ("visible", "hidden"),
    [("", True), ("-1", True), ("2", True), ("none", True), ("0", False), ("1,0", False), ("GPU-4a1", False)],
)
def test_cuda_visible_devices_is_read_as_cuda_reads_it(visible, hidden):
    assert diagnosis._hides_all(visible, 2) is hidden


def test_a_driver_too_old_for_this_torch_gets_the_build_that_it_runs(machine):
    machine("13.0", Driver("550", (12, 4), ((8, 0),)))
    finding = only(diagnosis.check_gpus())
    assert finding.level == "problem"
    assert "up to CUDA 12.4) sees GPU 0: too old for torch" in finding.what
    assert finding.remedy.endswith("+cu126 --index-url https://download.pytorch.org/whl/cu126")


def test_a_driver_too_old_for_every_build_must_be_updated(machine):
    machine(None, Driver("470", (11, 4), ((8, 0),)))
    finding = only(diagnosis.check_gpus())
    assert finding.level == "problem"
    assert "it must be updated first" in finding.what
    assert "ubuntu-drivers install" in finding.remedy


def test_a_gpu_that_torch_cannot_open_is_a_problem_with_its_reason(machine, monkeypatch):
    def init():
        raise RuntimeError("CUDA unknown error\nlong trace")

    machine("12.6", Driver("550", (12, 4), ((8, 0),)))
    monkeypatch.setattr(torch.cuda, "init", init)
    finding = only(diagnosis.check_gpus())
    assert finding.level == "problem"
    assert finding.what.endswith("torch cannot use it: CUDA unknown error")


@pytest.mark.parametrize(
    ("setup", "level", "text"),
    [
        ({"cuda": None, "fault": "no driver"}, "ok", "no NVIDIA GPU: training runs on the CPU"),
        ({"cuda": "12.6", "fault": "no driver"}, "warning", "no NVIDIA driver"),
        ({"cuda": "12.6", "fault": "no driver", "plugged": True}, "warning", "card is plugged in, but no driver"),
        ({"cuda": None, "fault": "no package"}, "warning", "nvidia-ml-py is missing"),
        ({"cuda": "12.6", "fault": "NVML/RM version mismatch"}, "problem", "updated while it was loaded"),
        ({"cuda": "12.6", "fault": "Driver Not Loaded"}, "problem", "does not answer: Driver Not Loaded"),
    ],
)
def test_a_machine_without_a_gpu_that_answers_says_why(machine, monkeypatch, setup, level, text):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    machine(**setup)
    finding = only(diagnosis.check_gpus())
    assert finding.level == level
    assert text in finding.what


@pytest.mark.parametrize(
    ("capability", "archs", "runs"),
    [
        ((8, 0), ["sm_80"], True),
        ((8, 6), ["sm_80"], True),  # machine code runs on later minor versions
        ((8, 0), ["sm_86"], False),  # not on earlier ones
        ((9, 0), ["sm_80", "sm_86"], False),  # nor on the next major version
        ((9, 0), ["sm_80", "compute_80"], True),  # which PTX reaches
        ((7, 5), ["sm_80", "compute_80"], False),
        ((6, 1), ["sm_50", "sm_60", "sm_70"], True),
        ((12, 1), ["sm_90", "sm_120"], True),
        ((9, 0), ["sm_90a"], True),
        ((9, 1), ["sm_90a", "compute_90a"], False),
        ((10, 3), ["sm_100f"], True),
        ((12, 0), ["compute_100f"], False),
        ((8, 0), ["gfx942", ""], False),
        ((8, 0), [], False),
    ],
)
def test_kernels_run_where_the_compatibility_rule_says(capability, archs, runs):
    assert has_kernels(capability, archs) is runs


@pytest.mark.parametrize(
    ("cuda_version", "capabilities", "build"),
    [
        ((12, 4), [(8, 0)], "cu126"),
        ((13, 0), [(9, 0)], "cu130"),
        ((13, 1), [(12, 0), (8, 6)], "cu130"),
        ((13, 0), [(6, 1)], "cu126"),  # CUDA 13 dropped Pascal
        ((12, 8), [(12, 0)], None),  # Blackwell needs CUDA 13
        ((11, 8), [(8, 0)], None),
        ((12, 2), [None], "cu126"),
        (None, [(8, 0)], None),
    ],
)
def test_the_build_suits_driver_and_gpus(cuda_version, capabilities, build):
    assert cuda_build(cuda_version, capabilities) == build


def visible_gpus(monkeypatch, capabilities, archs):
    """Let torch show GPUs of these capabilities and itself be built for `archs`."""
    devices = [
        types.SimpleNamespace(name=f"GPU {index}", major=major, minor=minor, total_memory=16 * 2**30)
        for index, (major, minor) in enumerate(capabilities)
    ]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(devices))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: devices[index])
    monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: archs)


def test_a_gpu_without_kernels_gets_the_build_that_has_them(machine, monkeypatch):
    machine("13.0", Driver("580", (13, 0), ((9, 0), (6, 1))))
    visible_gpus(monkeypatch, [(9, 0), (6, 1)], ["sm_75", "sm_80", "sm_90"])
    good, bad = diagnosis.check_gpus()
    assert good == diagnosis.ok("cuda:0: GPU 0, compute capability 9.0, 16.0 GiB")
    assert bad.level == "problem"
    assert "has no kernels for it, only sm_75 sm_80 sm_90" in bad.what
    assert bad.remedy.endswith("+cu126 --index-url https://download.pytorch.org/whl/cu126")


def test_a_gpu_that_no_build_reaches_is_left_out(machine, monkeypatch):
    machine("12.6", Driver("550", (12, 4), ((8, 0), (3, 5))))
    visible_gpus(monkeypatch, [(8, 0), (3, 5)], ["sm_50", "sm_80"])
    _, bad = diagnosis.check_gpus()
    assert bad.remedy.startswith("export CUDA_VISIBLE_DEVICES=0 ")


def test_a_part_of_the_gpus_is_said_to_be_visible(machine, monkeypatch):
    machine("12.6", Driver("550", (12, 4), ((8, 0), (8, 0))))
    visible_gpus(monkeypatch, [(8, 0)], ["sm_80"])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    part, _ = diagnosis.check_gpus()
    assert part.what == "torch sees 1 of the driver's 2 GPUs (CUDA_VISIBLE_DEVICES=1)"


@pytest.mark.parametrize(
    ("version", "level"), [((3, 10), "problem"), ((3, 11), "ok"), ((3, 12), "ok"), ((3, 13), "warning")]
)
def test_python_is_judged_by_what_is_supported(version, level):
    assert only(diagnosis.check_python(version)).level == level


def test_packages_are_compared_with_their_pins(monkeypatch, tmp_path):
    (tmp_path / "requirements.txt").write_text(
        "# core\ntorch==0.1  # old\nnumpy>=1\npytest==0.2\nno-such-package-here==1.0\n"
    )
    monkeypatch.setattr(diagnosis, "ROOT", tmp_path)
    missing, differing = diagnosis.check_packages()
    assert missing.level == "problem"
    assert missing.what == "not installed: no-such-package-here==1.0"
    assert missing.remedy.endswith(f"-m pip install -r {tmp_path}/requirements.txt")
    assert differing.level == "warning"
    assert f"torch {torch.__version__} (pinned: 0.1), pytest {pytest.__version__} (pinned: 0.2)" in differing.what


def test_a_full_disk_is_a_problem(monkeypatch):
    monkeypatch.setattr(diagnosis.shutil, "disk_usage", lambda _: types.SimpleNamespace(free=10**9))
    finding = only(diagnosis.check_disk())
    assert finding.level == "problem"
    assert "1.0 GB free" in finding.what
    assert "du -hd 2 data runs" in finding.remedy


def test_a_step_that_leaves_the_weights_is_a_problem(monkeypatch):
    monkeypatch.setattr(torch.optim.AdamW, "step", lambda self: None)
    monkeypatch.setattr(diagnosis, "_devices", lambda: [torch.device("cpu")])
    finding = only(diagnosis.check_training_step())
    assert finding.level == "problem"
    assert "left weights as they were" in finding.what


def test_a_device_that_fails_is_a_problem_with_the_reason(monkeypatch):
    def fails(_):
        raise RuntimeError("no kernel image is available\nCompile with ...")

    monkeypatch.setattr(diagnosis, "_training_step", fails)
    monkeypatch.setattr(diagnosis, "_devices", lambda: [torch.device("cuda", 0)])
    finding = only(diagnosis.check_training_step())
    assert finding.what == "cuda:0: a training step failed: no kernel image is available"


@pytest.mark.parametrize(
    ("text", "level", "says"),
    [
        ("distributed_type: 'NO'\nmixed_precision: 'no'\n", "ok", "NO, num_processes 1"),
        ("distributed_type: MULTI_CPU\nuse_cpu: true\nnum_processes: 2\n", "problem", "would start one process"),
        ("distributed_type: MULTI_GPU\nnum_processes: 2\n", "problem", "more processes than GPUs (0 per machine)"),
        ("distributed_type: 'NO'\nno_such_key: 1\n", "problem", "no_such_key"),
        ("- a list\n", "problem", "default Accelerate config"),
        ("a: [\n", "problem", "default Accelerate config"),
    ],
)
def test_the_default_accelerate_config_is_judged(monkeypatch, tmp_path, text, level, says):
    from accelerate.commands.config import config_args

    path = tmp_path / "default_config.yaml"
    path.write_text(text)
    monkeypatch.setattr(config_args, "default_config_file", str(path))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    finding = only(diagnosis.check_accelerate_config())
    assert finding.level == level
    assert says in finding.what
