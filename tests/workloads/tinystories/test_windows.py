"""Windows show the stream as it is, and tell stories apart by the tokens alone."""

import numpy as np
import pytest
import torch

from pipelines.workloads.tinystories import data, task
from pipelines.workloads.tinystories.task import Windows

CPU = torch.device("cpu")


def stream(lengths, largest=9):
    """Stories of these lengths, with a 0 before and after each, and the number of each token's story."""
    generator = np.random.default_rng(0)
    stories = [[0, *generator.integers(1, largest, length).tolist(), 0] for length in lengths]
    numbers = np.repeat(np.arange(len(lengths)), [length + 2 for length in lengths])
    return np.concatenate(stories).astype(np.uint16), numbers


@pytest.mark.parametrize("lengths", [[1], [3, 1, 2, 1], [40], [5] * 9, [1] * 20, [17, 2, 33, 1]])
@pytest.mark.parametrize(("length", "stride"), [(8, 8), (8, 4), (12, 6), (50, 25)])
def test_windows_are_those_of_a_stream_whose_stories_are_known(lengths, length, stride):
    tokens, numbers = stream(lengths)
    assert data.numbers(tokens).tolist() == numbers.tolist()
    windows = Windows(tokens, length, stride, CPU)
    missing = (windows.size - 1) * stride + length + 1 - len(tokens)
    tokens, numbers = np.pad(tokens, (0, missing)), np.pad(numbers, (0, missing), constant_values=-1)
    counted = 0
    for item in range(windows.size):
        batch = {name: values[0].numpy() for name, values in windows.batch(torch.tensor([item])).items()}
        part = slice(item * stride, item * stride + length)
        after = slice(part.start + 1, part.stop + 1)
        assert (batch["tokens"] == tokens[part]).all()
        assert (batch["targets"] == tokens[after]).all()
        assert ((batch["stories"][:, None] == batch["stories"]) == (numbers[part, None] == numbers[part])).all()
        new = (np.arange(length) >= length - stride) | (item == 0)
        assert (batch["counted"] == ((numbers[after] == numbers[part]) & (numbers[part] >= 0) & new)).all()
        counted += batch["counted"].sum()
    assert counted == sum(lengths) + len(lengths)  # every token but the first of each story, once


def test_only_what_a_memory_counted_is_left_out_of_what_it_says():
    tokens, _ = stream([5] * 9)
    windows = Windows(tokens, 12, 12, CPU, remembered=20)
    batch = windows.batch(torch.arange(windows.size))
    places = torch.arange(windows.size)[:, None] * 12 + torch.arange(12)
    expected = torch.where(batch["counted"] & (places + 1 < 20), batch["targets"], -1)
    assert (batch["followed"] == expected).all()
    assert (expected >= 0).any()
    assert (batch["counted"] & (expected < 0)).any()


def test_a_mapped_stream_is_read_like_one_in_memory(tmp_path):
    tokens, _ = stream([17, 2, 33, 1])
    tokens.tofile(tmp_path / "stream")
    read = [
        Windows(each, 8, 4, CPU).batch(torch.arange(5))
        for each in (tokens, np.memmap(tmp_path / "stream", np.uint16, "c"))
    ]
    assert all(torch.equal(read[0][name], read[1][name]) for name in read[0])


def test_all_tokens_of_16_bits_are_kept():
    tokens, _ = stream([500], largest=1 << 16)
    assert tokens.max() > 1 << 15
    assert Windows(tokens, 501, 501, CPU).batch(torch.tensor([0]))["targets"][0].tolist() == tokens[1:].tolist()


def test_a_stream_that_the_device_has_no_room_for_stays_in_memory(monkeypatch):
    asked = []
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: asked.append(device) or (4000, 8000))
    gpu = torch.device("cuda")
    assert task.has_room(gpu, 999)
    assert not task.has_room(gpu, 1000)
    assert len(asked) == 2
    assert task.has_room(CPU, 10**15)
