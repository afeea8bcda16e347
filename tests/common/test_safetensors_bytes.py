"""Files written in pieces are the library's, byte for byte."""

import hashlib

import safetensors.torch
import torch

from common import safetensors_bytes

TENSORS = {
    "b": torch.randn(3, 5),
    "a": torch.randn(5, 3).T,  # not contiguous
    "half": torch.randn(7).half(),
    "brain": torch.randn(2, 2).bfloat16(),
    "scalar": torch.tensor(3.5),
    "empty": torch.zeros(0, 4),
    "tie\u00e9": torch.arange(5),
    "byte": torch.arange(3, dtype=torch.uint8),
    "whole": torch.arange(3, dtype=torch.int32),
    "small": torch.tensor([[True, False]]),
    "double": torch.randn(2).double(),
}


def test_pieces_are_the_bytes_that_the_library_writes():
    data = b"".join(safetensors_bytes.pieces(TENSORS))
    library = safetensors.torch.save({name: tensor.contiguous() for name, tensor in TENSORS.items()})
    (header, body), (expected, tensors) = map(safetensors_bytes.split, (data, library))
    assert (list(header.items()), body) == (list(expected.items()), tensors)
    header, summed = safetensors_bytes.split(b"".join(safetensors_bytes.pieces(TENSORS, {"x": "y"})))
    assert header == {"__metadata__": {"x": "y", "sha256": hashlib.sha256(body).hexdigest()}, **expected}
    assert summed == body
    read = safetensors.torch.load(data)
    assert all(torch.equal(read[name], tensor) and read[name].dtype == tensor.dtype for name, tensor in TENSORS.items())


def test_tensors_of_shared_memory_are_written_one_by_one():
    weights = torch.arange(6.0)
    data = b"".join(safetensors_bytes.pieces({"all": weights, "part": weights[2:4]}))
    assert safetensors.torch.load(data)["part"].tolist() == [2, 3]
