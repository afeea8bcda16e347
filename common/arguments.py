"""Words on a command line: mistakes in them are told in a line, with the nearest that there is."""

import argparse
import difflib
from collections.abc import Collection
from typing import Any, NoReturn

from common.errors import UserError
from common.foreign_text import printable


class Parser(argparse.ArgumentParser):
    """An argument parser whose description is shown as it is written, and whose errors are `UserError`s."""

    def __init__(self, **settings: Any):
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, **settings)

    def error(self, message: str) -> NoReturn:
        """Raise UserError, for an unknown option with the nearest known one."""
        unknown = [word.partition("=")[0] for word in message.split() if word.startswith("-")]
        near = (
            nearest(unknown[0], self._option_string_actions) if message.startswith("unrecognized") and unknown else []
        )
        hint = f"did you mean {near[0]}?" if near else "--help lists what there is"
        raise UserError(f"{printable(message, 200)}; {hint}")


def nearest(word: str, known: Collection[str], most: int = 1) -> list[str]:
    """Return up to `most` of the `known` words that `word` may be a slip of, the likeliest first."""
    return difflib.get_close_matches(word, known, most, 0.6)
