"""The bytes of safetensors files, without copies and mostly without the GIL, so that training continues meanwhile."""

import hashlib
import json
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

# In the order of the library's files, whose tensors are aligned.
WIDE = {torch.int64: "I64", torch.float64: "F64", torch.complex64: "C64", torch.float32: "F32", torch.int32: "I32"}
NARROW = {torch.bfloat16: "BF16", torch.float16: "F16", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8"}
TYPES = {**WIDE, **NARROW, torch.bool: "BOOL"}


def pieces(tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> Iterator[bytes | memoryview]:
    """Yield the bytes of a file; `metadata`, if any, go into its header with the SHA-256 of all `tensors`."""
    order, header, end = list(TYPES), dict[str, object](), 0
    ordered = sorted(tensors.items(), key=lambda item: (order.index(item[1].dtype), item[0]))
    for name, tensor in ordered:
        begin, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": TYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
    if metadata is not None:
        digest = hashlib.sha256()
        for _, tensor in ordered:
            digest.update(_view(tensor))
        header = {"__metadata__": {**metadata, "sha256": digest.hexdigest()}, **header}
    # The library's own writer changes the order of metadata from run to run.
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # tensors start at a multiple of 8
    yield len(text).to_bytes(8, "little") + text
    for _, tensor in ordered:
        yield _view(tensor)


def _view(tensor: Tensor) -> memoryview:
    tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data


def split(data: bytes | memoryview) -> tuple[dict[str, object], bytes | memoryview]:
    """Return (header, tensor bytes) of a safetensors file, whose first 8 bytes are the header's length."""
    start = 8 + int.from_bytes(data[:8], "little")
    return json.loads(bytes(data[8:start])), data[start:]
