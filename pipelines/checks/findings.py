"""Findings, the one thing that every check yields, and the small pieces of text that they share."""

from dataclasses import dataclass
from functools import partial


@dataclass(frozen=True)
class Finding:
    """The result of a check: "ok", "warning", which training survives, or "problem", whose remedy is a command."""

    level: str
    message: str
    remedy: str | None = None


ok, warning = partial(Finding, "ok"), partial(Finding, "warning")


def problem(message: str, remedy: str) -> Finding:
    """Return a finding that training does not survive."""
    return Finding("problem", message, remedy)


def dotted(version: tuple[int, int]) -> str:
    """Return a version as text."""
    return f"{version[0]}.{version[1]}"


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message."""
    return str(error).strip().partition("\n")[0]
