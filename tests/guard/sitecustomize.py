"""Keeps tests out of the checkout's runs/ and data/, in their own process and in the commands that they start.

Python imports a module of this name at its start: tests/conftest.py puts this folder on PYTHONPATH, and into
CHECKOUT_GUARD a file that collects what was touched. Looking whether a path exists is no event that Python reports.
"""

import os
import sys

FOLDER = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(FOLDER))
FORBIDDEN = tuple(os.path.join(ROOT, name) for name in ("runs", "data"))
EVENTS = {  # those that Python reports, and how many paths are their first arguments
    **dict.fromkeys(("open", "os.listdir", "os.scandir", "os.mkdir", "os.remove", "os.rmdir", "os.truncate"), 1),
    **dict.fromkeys(("os.rename", "os.link", "os.symlink"), 2),
}


class Touched(Exception):
    """A test would read or write the checkout's runs or data."""


def watch(collected: str) -> None:
    """Refuse, from now on and in this process, every access to what is forbidden, and tell the file `collected`."""
    sys.addaudithook(lambda event, arguments: _check(event, arguments, collected))


def _check(event, arguments, collected):
    for path in arguments[: EVENTS.get(event, 0)]:
        if isinstance(path, int) or path is None or _of_open_folder(event, arguments, path):
            continue
        full = os.path.abspath(os.fsdecode(path))
        if any(f"{full}{os.sep}".startswith(f"{folder}{os.sep}") for folder in FORBIDDEN):
            message = f"{event} {full} by {sys.argv}; a test works in a folder of its own\n"
            file = os.open(collected, os.O_WRONLY | os.O_APPEND)
            os.write(file, message.encode())
            os.close(file)
            raise Touched(message)


def _of_open_folder(event, arguments, path):
    """Whether a relative path may be one in an open folder, as when rmtree removes it, not in the current folder."""
    if os.path.isabs(path):
        return False
    if event == "open":
        return arguments[1] is None  # of os.open, whose event has no `dir_fd`
    return any(isinstance(each, int) and each >= 0 for each in arguments[-EVENTS[event] :]) and event != "os.truncate"


if "CHECKOUT_GUARD" in os.environ:
    watch(os.environ["CHECKOUT_GUARD"])
