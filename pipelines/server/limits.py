"""Bounds on requests, and the exception that refuses one."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from starlette.exceptions import HTTPException


@dataclass(frozen=True)
class Limits:
    """Bounds on requests."""

    body_bytes: int = 8 * 2**20  # per request
    bodies: int = 8  # bound on all unanswered bodies together, in largest bodies
    inputs: int = 64  # per request
    waiting: int = 256  # unanswered requests per run
    seconds: float = 60.0  # for the body to arrive, and for the answer
    token: str | None = None  # required of requests; None: anyone is answered
    sessions: Path = Path("runs/.sessions")  # folder of the texts of sessions


class Refused(HTTPException):
    """A request that is not answered: the response's status, and what is wrong."""


def too_large(values: object, served: Mapping[str, float]) -> str | None:
    """Say which number, or length of a text or a list, exceeds its bound; None if none does."""
    for key, most in served.items():
        value = getattr(values, key, None)
        size = len(value) if isinstance(value, str | tuple) else value
        if size is not None and size > most:
            what = "is longer than" if isinstance(value, str | tuple) else f"is {value}, more than"
            return f"{key} {what} the {most:g} that this server takes"
    return None
