"""How commands end: exit statuses, messages of errors, and the first line that a command prints."""

import atexit
import errno
import gc
import os
import sys
import time
import warnings
from collections.abc import Callable

from common.disk.files import FAULTS
from common.errors import LostProcessError, MembersFailedError, Stopped, UserError
from common.foreign_text import printable
from common.machine import yield_while_waiting
from common.packages import missing
from pipelines.distributed import ranks

REMEDIES = FAULTS | {errno.ENAMETOOLONG: "the name is too long for a file or folder; give a shorter one"}


def run_main(main: Callable[[], None]) -> None:
    """Call `main`; exit with 2 and a message for an error the user can fix, with 128 + n after signal n."""
    warnings.filterwarnings("ignore", message=".*barrier.*device.*", category=UserWarning)
    yield_while_waiting()
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # as JSON escapes odd file names
    # Saves a second of garbage collection; Triton's bindings would report what is not collected as leaks.
    atexit.register(lambda: None if "triton" in sys.modules else gc.freeze())
    try:
        main()
        ranks.part()
    except (UserError, MembersFailedError) as error:
        _leave(f"error: {error}", 2 if isinstance(error, UserError) else 1)
    except Stopped as stop:
        _leave(str(stop), 128 + stop.number)
    except KeyboardInterrupt:  # where nothing is saved, such as while data are prepared
        _leave("stopped by Ctrl-C", 130)
    except OSError as error:
        if error.errno not in REMEDIES:
            raise
        _leave(f"error: {error}: {REMEDIES[error.errno]}", 2)
    except LostProcessError:  # already printed; this one must not wait for ranks that still do
        sys.stderr.flush()
        os._exit(1)
    except ModuleNotFoundError as error:
        if (lacking := missing(error)) is None:
            raise
        _leave(f"error: {lacking}", 2)


def _leave(message: str, status: int) -> None:
    if int(os.environ.get("RANK", 0)) == 0:
        _say(message)
    else:
        time.sleep(5)  # the launcher kills the others once one has exited: let the first one speak
    sys.exit(status)


def announce(line: str) -> None:
    """Print the first line of a command, before the seconds that importing torch takes."""
    if ranks.is_main():
        _say(line)


def _say(text: str) -> None:
    """Print lines on stderr, with the control characters of users' files escaped."""
    print("\n".join(map(printable, text.split("\n"))), file=sys.stderr, flush=True)
