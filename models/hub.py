"""Models on Hugging Face's hub: a repository `owner/name` that holds what `models.io.save` writes."""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from common.foreign_text import printable

NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")  # owner/name


def located(folder: str | Path, files: Sequence[str], revision: str | None = None) -> Path:
    """Return a folder; where there is none and its name can be owner/name, one with `files` of that repository.

    Of a trained run's folder it is that of its best model. `revision` is a branch, a tag or a commit. Raises
    ValueError, in one line, if they cannot be had.
    """
    name = str(folder)
    if os.path.exists(name) or not NAME.fullmatch(name):  # unlike Path.exists, false for a name that is too long
        if revision is not None:
            raise ValueError(f"revision {revision!r} is for models on the hub, not for the folder {name}; leave it out")
        best = os.path.join(name, "model", "best")
        return Path(best if os.path.isdir(best) else name)
    from huggingface_hub import snapshot_download

    with explained(f"{name!r} is no folder here, and cannot be had from the hub"):
        return Path(snapshot_download(name, revision=revision, allow_patterns=list(files)))


@contextmanager
def explained(failed: str) -> Iterator[None]:
    """Turn whatever the hub's library raises into a ValueError that says in one line what `failed` and why."""
    from huggingface_hub import errors

    try:
        yield
    except errors.OfflineModeIsEnabled as error:
        raise ValueError(f"{failed}: HF_HUB_OFFLINE is set; unset it") from error
    except Exception as error:  # the library and what it stands on raise a dozen unrelated types
        first: BaseException = error
        while first.__cause__ is not None and not isinstance(first, errors.HfHubHTTPError):
            first = first.__cause__
        said = printable(" ".join(str(first).split()) or type(first).__name__, 300)
        raise ValueError(f"{failed} ({said}); see to the name, to the network, and to `hf auth login`") from error
