"""Parser of a command's options: one-line errors with the nearest match."""

import argparse
import sys
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from common.config.mistakes import nearest
from common.errors import UserError
from common.foreign_text import printable
from common.packages import version


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that raises `UserError`; users mistake the dotted keys that `keys` returns for options."""

    def __init__(self, keys: Callable[[], Iterable[str]] = tuple, **settings: Any):
        self.keys = keys
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, **settings)
        self.add_argument("--version", action="version", version=version(), help="print the version and exit")

    def error(self, message: str) -> NoReturn:
        """Raise UserError, for an unknown option with the nearest known one."""
        unknown = [word.partition("=")[0] for word in message.split() if word.startswith("-")]
        hint = "--help lists what there is"
        if message.startswith("unrecognized") and unknown:
            if word := self._as_word(unknown[0]):
                hint = f"did you mean {word}, without dashes?"
            elif near := nearest(unknown[0], self._option_string_actions):
                hint = f"did you mean {near[0]}?"
        raise UserError(f"{printable(message, 200)}; {hint}")

    def _as_word(self, option: str) -> str:
        """Return the word key=value that an option was meant as; "" if none."""
        name = option.lstrip("-").replace("-", "_")
        key = next((key for key in self.keys() if name in (key, key.rpartition(".")[2])), None)
        given = [word for word in sys.argv if word.partition("=")[0] == option]
        if key is None or not given:
            return key or ""
        following = sys.argv[sys.argv.index(given[0]) + 1 :][:1]
        value = given[0].partition("=")[2] or "".join(word for word in following if not word.startswith("-"))
        return f"{key}={value or '...'}"
