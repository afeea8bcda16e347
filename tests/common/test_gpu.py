"""GPU figures, read from a stand-in for the driver in a process of its own."""

import json

import fake_driver
import pytest
import torch

from common.gpu import GPU, figures, read_gpu

READ_ALL = """
import dataclasses, json
from common.gpu import figures, read_driver, read_gpus
gpus = read_gpus()
print(json.dumps([[dataclasses.asdict(gpu), figures(gpu)] for gpu in gpus]))
"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    return fake_driver.build(tmp_path_factory.mktemp("driver"))


def python(script, libraries, **environment):
    done = fake_driver.run(["-c", script], libraries, **environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_every_figure_of_every_gpu_is_read(driver):
    first, second = python(READ_ALL, driver, FAKE_NVML_GPUS="2")
    assert first[0] == {
        "name": "Imaginary GPU 0",
        "utilisation_percent": 37,
        "memory_used_bytes": 10 * 2**30,
        "memory_total_bytes": 80 * 2**30,
        "temperature_c": 50,
        "power_w": 250.0,
    }
    assert second[1] == {
        "gpu/utilisation_percent": 37.0,
        "gpu/memory_gib": 11.0,
        "gpu/temperature_c": 51.0,
        "gpu/power_w": 251.0,
    }


def test_what_the_driver_does_not_support_is_none_and_no_figure(driver):
    [[gpu, values]] = python(READ_ALL, driver, FAKE_NVML_UNSUPPORTED="power,name")
    assert gpu["power_w"] is None
    assert gpu["name"] is None
    assert sorted(values) == ["gpu/memory_gib", "gpu/temperature_c", "gpu/utilisation_percent"]


def test_a_gpu_without_any_figure_has_no_figures():
    assert figures(GPU(None, None, None, None, None, None)) == {}


def test_zero_is_a_figure():
    assert figures(GPU("idle", 0, 0, 2**30, 0, 0.0))["gpu/utilisation_percent"] == 0.0


def test_without_a_driver_there_are_no_gpus(tmp_path):
    assert python(READ_ALL, fake_driver.absent(tmp_path)) == []


def test_a_driver_that_fails_to_open_has_no_gpus_and_says_why(driver):
    script = "import json; from common import gpu; print(json.dumps([*gpu.read_gpus(), gpu.driver_fault()]))"
    [fault] = python(script, driver, FAKE_NVML_INIT="18")
    assert "mismatch" in fault


def test_the_cpu_is_no_gpu():
    assert read_gpu(torch.device("cpu")) is None


def test_a_cuda_device_is_found_by_its_uuid_not_its_number(driver):
    script = """
import json, types, torch
from common.gpu import read_gpu
uuids = ["00000002-0000-0000-0000-000000000000", "00000000-0000-0000-0000-000000000000", "unknown to the driver"]
torch.cuda.get_device_properties = lambda index: types.SimpleNamespace(uuid=uuids[index])
torch.cuda.current_device = lambda: 1
gpus = [read_gpu(torch.device(name)) for name in ("cuda:0", "cuda:1", "cuda", "cuda:2")]
print(json.dumps([gpu and gpu.name for gpu in gpus]))
"""
    names = python(script, driver, FAKE_NVML_GPUS="3", CUDA_VISIBLE_DEVICES="2,0")
    assert names == ["Imaginary GPU 2", "Imaginary GPU 0", "Imaginary GPU 0", None]


def test_a_reading_costs_less_than_a_millisecond(driver):
    script = """
import json, time
from common.gpu import read_gpus
read_gpus()
seconds = []
for _ in range(200):
    began = time.process_time()
    read_gpus()
    seconds.append(time.process_time() - began)
print(json.dumps(sorted(seconds)[100]))
"""
    assert python(script, driver) < 1e-3
