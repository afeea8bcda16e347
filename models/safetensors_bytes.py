"""The bytes of safetensors files: a header with the sum of what follows it, and the tensors."""

import hashlib
import json
from collections.abc import Mapping


def split(data: bytes) -> tuple[dict[str, object], bytes]:
    """Return (header, tensor bytes) of a safetensors file, whose first 8 bytes are the header's length."""
    start = 8 + int.from_bytes(data[:8], "little")
    return json.loads(data[8:start]), data[start:]


def with_header(data: bytes, metadata: Mapping[str, str]) -> bytes:
    """Safetensors bytes with metadata in an order that stays, which the library's is not, and a sum of the tensors."""
    header, body = split(data)
    header = {"__metadata__": {**metadata, "sha256": sha256(body)}, **header}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # tensors start at a multiple of 8
    return len(text).to_bytes(8, "little") + text + body


def sha256(data: bytes) -> str:
    """Return the hexadecimal SHA-256 digest."""
    return hashlib.sha256(data).hexdigest()
