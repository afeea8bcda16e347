"""The line about memory before training."""

import re
from types import SimpleNamespace

import pytest
import torch

from pipelines.workloads.lmol import memory
from tests.workloads.lmol.small import config, make


@pytest.mark.slow
def test_a_large_base_tells_what_it_will_need(prepared, monkeypatch):
    subject = make(prepared, "vlm", lora=True)
    assert memory.note(subject, torch.device("cpu")) == []
    monkeypatch.setattr(memory, "TOLD_FROM", 0)
    monkeypatch.setattr(memory, "GB", 1)
    monkeypatch.setattr(memory, "total_bytes", lambda device: 10**8)
    found = {}
    for size in (4, 8):
        monkeypatch.setattr(subject, "config", config("vlm", lora=True, training={"micro_batch_size": size}))
        (line,) = memory.note(subject, torch.device("cpu"))
        numbers = [float(number) for number in re.findall(r"[\d.]+", line)]
        assert re.match(
            rf"memory: needs [\d.]+ of 100000000 GB with {size} pairs at once \(weights .*, a pass .*\); ", line
        )
        needs, _, _, weights, optimizer, features, one_pass, most = numbers
        assert needs == weights + optimizer + features + one_pass
        assert features == subject.train.encoded.nbytes
        assert weights == sum(t.nbytes for t in [*subject.model.parameters(), *subject.model.buffers()])
        assert optimizer == 2 * sum(p.nbytes for p in subject.model.parameters() if p.requires_grad)
        found[size] = one_pass, most
    a_pair = (found[8][0] - found[4][0]) / 4
    assert found[4][1] == found[8][1] == pytest.approx(8 + (10**8 - needs) / a_pair, abs=1)
    four_bit = SimpleNamespace(training=subject.config.training, model=SimpleNamespace(four_bit=True))
    monkeypatch.setattr(subject, "config", four_bit)
    assert "needs at least" in memory.note(subject, torch.device("cpu"))[0]


def test_a_small_model_needs_no_line(whole):
    assert memory.note(whole["siamese"], torch.device("cpu")) == []
