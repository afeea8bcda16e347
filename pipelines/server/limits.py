"""What one client may ask of a server, and the refusals of what is more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Limits:
    """Bounds on requests."""

    body_bytes: int = 8 * 2**20  # of a request
    bodies: int = 8  # of that size, together, of requests that are not answered yet
    inputs: int = 64  # of a request
    waiting: int = 256  # requests to one run that are not answered yet
    seconds: float = 60.0  # for the body to arrive, and for an answer
    token: str | None = None  # that requests must bring; None: any request is answered


class Refused(Exception):
    """A request that is not answered; `status` is that of the response."""

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status = status


def too_large(values: Any, served: Mapping[str, float]) -> str | None:
    """Say which value of an input or of settings is more than a server takes; None if none is.

    Numbers are bounded by their value, texts and lists by their length.
    """
    for key, most in served.items():
        value = getattr(values, key, None)
        size = len(value) if isinstance(value, str | tuple) else value
        if size is not None and size > most:
            what = "is longer than" if isinstance(value, str | tuple) else f"is {value}, more than"
            return f"{key} {what} the {most:g} that this server takes"
    return None
