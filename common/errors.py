"""How a stage may end other than well: each kind has an exit status of its own."""

import signal


class UserError(ValueError):
    """An error that the user can fix: the message says what is wrong, what was given and what to type instead.

    Entry points print it without a traceback and exit with status 2.
    """


class Stopped(Exception):
    """A signal asked training to stop, and everything is saved. Entry points exit with 128 + the signal's number."""

    def __init__(self, number: int, where: str = ""):
        super().__init__(number, where)  # with which it is made again on other processes
        self.number, self.where = number, where

    def __str__(self) -> str:
        return f"stopped by {signal.Signals(self.number).name}{self.where}; go on with --resume"


class MembersFailed(Exception):
    """Some models of a run of many could not be trained; all others were. Entry points exit with status 1."""
