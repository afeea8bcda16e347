"""How a stage may fail or stop; each kind has its own exit status."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

Errors = type[Exception] | tuple[type[Exception], ...]


class UserError(ValueError):
    """An error that the user can fix: what is wrong, what was given, what to type instead. Commands exit with 2."""


@contextmanager
def as_user_error(about: str = "", then: str = "", of: Errors = ValueError) -> Iterator[None]:
    """Turn errors `of` these types within the block into a UserError: `about`, the reason, `then`."""
    try:
        yield
    except of as error:
        reason = getattr(error, "strerror", None) or error  # the system's errors without their numbers and files
        raise UserError(f"{about}{reason}{then}") from error


class Stopped(Exception):  # noqa: N818 (it is no error)
    """A signal asked training to stop, and everything is saved. Entry points exit with 128 + the signal's number."""

    def __init__(self, number: int, where: str = "", then: str = "continue with --resume"):
        super().__init__(number, where, then)  # pickle rebuilds it from these on other processes
        self.number, self.where, self.then = number, where, then

    def __str__(self) -> str:
        return f"stopped by {signal.Signals(self.number).name}{self.where}; {self.then}"


class LostProcessError(Exception):
    """Another process of the training has died or gone silent, as this one has printed. Exit status 1."""


class MembersFailedError(Exception):
    """Some models of a run of many could not be trained; all others were. Entry points exit with status 1."""
