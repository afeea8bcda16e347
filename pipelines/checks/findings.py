"""Findings, the one thing that every check yields, and the small pieces of text that they share."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """The result of a check: `level` is "ok", "warning" or "problem"; a problem always has a command as its remedy."""

    level: str
    message: str
    remedy: str | None = None


def ok(message: str) -> Finding:
    """Return a finding about something that works."""
    return Finding("ok", message)


def warning(message: str, remedy: str | None = None) -> Finding:
    """Return a finding that training survives."""
    return Finding("warning", message, remedy)


def problem(message: str, remedy: str) -> Finding:
    """Return a finding that training does not survive."""
    return Finding("problem", message, remedy)


def dotted(version: tuple[int, int]) -> str:
    """Return a version as text."""
    return f"{version[0]}.{version[1]}"


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message."""
    return str(error).strip().partition("\n")[0]
