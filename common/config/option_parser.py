"""Parser of a command's options: one-line errors with the nearest match."""

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from common.config.mistakes import nearest
from common.errors import UserError
from common.foreign_text import printable
from common.packages import version

FINISHED = re.compile(r"""\s[\w.]+=("[^"]*"|'[^']*'|[^\s"'])*(?=\s)""")  # words key=value before the last


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that raises `UserError`, with a hint if one of the dotted `keys` was given as an option."""

    def __init__(self, keys: Callable[[], Iterable[str]] = tuple, **settings: Any):
        # Files and their names are read as UTF-8, a mode that only a new interpreter can enter.
        if sys.getfilesystemencoding() != "utf-8" and os.environ.get("PYTHONUTF8") != "1":
            os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, "PYTHONUTF8": "1"})
        self.keys = keys
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, **settings)
        self.add_argument("--version", action="version", version=version(), help="print the version and exit")

    def error(self, message: str) -> NoReturn:
        """Raise UserError, for an unknown option with the nearest known one."""
        unknown = [word.partition("=")[0] for word in message.split() if word.startswith("-")]
        hint = "--help lists the options"
        if message.startswith("unrecognized") and unknown:
            if word := self._as_word(unknown[0]):
                hint = f"did you mean {word}, without dashes?"
            elif near := nearest(unknown[0], self._option_string_actions):
                hint = f"did you mean {near[0]}?"
        raise UserError(f"{printable(message, 200)}; {hint}")

    def completing(self, values: Callable[..., list[str]]) -> "Parser":
        """Return itself; when a shell asks for completions, print those of the completer `values` and exit."""
        if "_ARGCOMPLETE" in os.environ:
            import argcomplete

            # For argcomplete, an option ends the words key=value; for parse_intermixed_args it does not.
            line = FINISHED.sub(" ", os.environ["COMP_LINE"])
            os.environ |= {"COMP_LINE": line, "COMP_POINT": str(len(line))}
            argcomplete.autocomplete(self, always_complete_options=False, default_completer=values)  # type: ignore[arg-type] # any function will do
        return self

    def _as_word(self, option: str) -> str:
        """Return the word key=value that the user meant by an option; "" if none."""
        name = option.lstrip("-").replace("-", "_")
        key = next((key for key in self.keys() if name in (key, key.rpartition(".")[2])), None)
        given = [word for word in sys.argv if word.partition("=")[0] == option]
        if key is None or not given:
            return key or ""
        following = sys.argv[sys.argv.index(given[0]) + 1 :][:1]
        value = given[0].partition("=")[2] or "".join(word for word in following if not word.startswith("-"))
        return f"{key}={value or '...'}"
