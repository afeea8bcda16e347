"""Models on Hugging Face's hub: a repository `owner/name` that holds what `models.io.save` writes."""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from common.foreign_text import printable

NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")  # owner/name


def located(folder: str | Path, files: Sequence[str], revision: str | None = None) -> Path:
    """Return a local folder, or else one with `files` downloaded from the hub's repository of that name.

    A trained run's folder becomes that of its best model. `revision` is a branch, a tag or a commit. Raises ValueError,
    in one line, if the files are not available.
    """
    name = str(folder)
    if os.path.exists(name) or not NAME.fullmatch(name):  # unlike Path.exists, false for a name that is too long
        if revision is not None:
            raise ValueError(f"revision {revision!r} is for models on the hub, not for the folder {name}; leave it out")
        best = os.path.join(name, "model", "best")
        return Path(best if os.path.isdir(best) else name)
    from huggingface_hub import snapshot_download

    with explained(f"{name!r} is no folder here, and cannot be downloaded from the hub"):
        return Path(snapshot_download(name, revision=revision, allow_patterns=list(files)))


@contextmanager
def explained(failed: str) -> Iterator[None]:
    """Turn any error of the hub's library into a ValueError that says in one line what `failed` and why."""
    from huggingface_hub import errors

    try:
        yield
    except errors.OfflineModeIsEnabled as error:
        raise ValueError(f"{failed}: HF_HUB_OFFLINE is set; unset it") from error
    except Exception as error:  # the library and its dependencies raise a dozen unrelated types
        first: BaseException = error
        while first.__cause__ is not None and not isinstance(first, errors.HfHubHTTPError):
            first = first.__cause__
        said = printable(" ".join(str(first).split()) or type(first).__name__, 300)
        raise ValueError(f"{failed} ({said}); check the name, the network and `hf auth login`") from error
