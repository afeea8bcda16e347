"""GPU figures, read from a stand-in for the driver in a process of its own."""

import json

import fake_driver
import pytest
import torch

from common.gpu import read_gpu

TORCH = """
import json, sys, time, types
from types import SimpleNamespace as Made
uuids = [f"{index:08}-0000-0000-0000-000000000000" for index in range(3)]
sys.modules["torch"] = Made(cuda=Made(  # which takes seconds to import
    get_device_properties=lambda index: Made(uuid=uuids[index]), current_device=lambda: 1
))
from common.gpu import read_driver, read_gpu
"""
READ_ALL = f"""{TORCH}
driver = read_driver()
names = driver.names if driver else ()
print(json.dumps([[name, read_gpu(Made(type="cuda", index=index))] for index, name in enumerate(names)]))
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
    assert first[0] == "Imaginary GPU 0"
    assert second[1] == {
        "gpu/utilisation_percent": 37.0,
        "gpu/memory_gib": 11.0,
        "gpu/temperature_c": 51.0,
        "gpu/power_w": 251.0,
    }


def test_what_the_driver_does_not_support_is_none_and_no_figure(driver):
    [[name, values]] = python(READ_ALL, driver, FAKE_NVML_UNSUPPORTED="power,name")
    assert name is None
    assert sorted(values) == ["gpu/memory_gib", "gpu/temperature_c", "gpu/utilisation_percent"]


def test_without_a_driver_there_are_no_gpus(tmp_path):
    assert python(READ_ALL, fake_driver.absent(tmp_path)) == []


def test_a_driver_that_fails_to_open_has_no_gpus_and_says_why(driver):
    script = f"{TORCH}from common import gpu; print(json.dumps([gpu.read_driver(), gpu.driver_fault()]))"
    read, fault = python(script, driver, FAKE_NVML_INIT="18")
    assert read is None
    assert "mismatch" in fault


def test_the_cpu_is_no_gpu():
    assert read_gpu(torch.device("cpu")) == {}


def test_a_cuda_device_is_found_by_its_uuid_not_its_number(driver):
    script = f"""{TORCH}
uuids = [uuids[2], uuids[0], "unknown to the driver"]
gpus = [read_gpu(Made(type="cuda", index=index)) for index in (0, 1, None, 2)]
print(json.dumps([gpu.get("gpu/temperature_c") for gpu in gpus]))
"""
    degrees = python(script, driver, FAKE_NVML_GPUS="3", CUDA_VISIBLE_DEVICES="2,0")
    assert degrees == [52.0, 50.0, 50.0, None]


def test_a_reading_costs_less_than_a_millisecond(driver):
    script = f"""{TORCH}
device = Made(type="cuda", index=0)
assert read_gpu(device)
seconds = []
for _ in range(200):
    began = time.process_time()
    read_gpu(device)
    seconds.append(time.process_time() - began)
print(json.dumps(sorted(seconds)[100]))
"""
    assert python(script, driver) < 1e-3
