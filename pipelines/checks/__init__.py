"""Checks that this machine is ready to train, and measurements of how fast it trains. A check yields findings."""

from dataclasses import dataclass
from functools import partial


@dataclass(frozen=True)
class Finding:
    """The result of a check: "ok", "warning", which training survives, or "problem", whose remedy is a command."""

    level: str
    message: str
    remedy: str | None = None


ok, warning, problem = (partial(Finding, level) for level in ("ok", "warning", "problem"))


def dotted(version: tuple[int, int]) -> str:
    """Return a version as text."""
    return f"{version[0]}.{version[1]}"


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message."""
    return str(error).strip().partition("\n")[0]
