"""Documents of a folder: read or refused, cleaned, masked, and grouped into families."""

import contextlib
import io
import re
import shutil
import zipfile
from collections.abc import Iterator

from common.errors import UserError

# Documents with macros, and templates, differ in this from documents that python-docx opens.
KINDS = re.compile(
    rb"application/vnd\.(?:ms-word\.(?:document|template)\.macroEnabled|openxmlformats-officedocument\."
    rb"wordprocessingml\.template)\.main\+xml"
)
DOCUMENT = b"application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"


def too_large(size: int, maximum_bytes: int) -> UserError:
    """Return the error for a file that is larger than the limit."""
    return UserError(f"has {size:,} bytes when expanded, more than data.maximum_bytes={maximum_bytes}")


@contextlib.contextmanager
def refusing(kind: str, way: str) -> Iterator[None]:
    """Turn whatever libraries raise about a damaged file, of dozens of unrelated types, into UserError."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        why = " ".join(str(error).split())[:200] or type(error).__name__
        raise UserError(f"cannot be read as {kind}: {why}; {way}") from error


def unpacked(content: bytes, maximum_bytes: int, parts: tuple[str, ...]) -> io.BytesIO:
    """Return the same archive, stored without compression; `parts` are its kind and the members it must hold.

    The sizes that the archive declares are added up before anything is expanded, and no member is expanded beyond its
    declared size. A library that reads a member in a single call would expand all of it, whatever it declares.
    """
    with zipfile.ZipFile(io.BytesIO(content)) as packed:
        members = packed.infolist()
        if (size := sum(member.file_size for member in members)) > maximum_bytes:
            raise too_large(size, maximum_bytes)
        if any(member.flag_bits & 1 for member in members):
            raise UserError("is encrypted; save it without a password")
        if not set(parts[1:]) <= set(packed.namelist()):
            raise UserError(f"is a zip archive but not {parts[0]}; rename it, or unpack it")
        stored = io.BytesIO()
        with zipfile.ZipFile(stored, "w") as copy:
            for member in members:
                with packed.open(member) as source, copy.open(member.filename, "w") as target:
                    if member.filename == "[Content_Types].xml":
                        target.write(KINDS.sub(DOCUMENT, source.read()))
                    else:
                        shutil.copyfileobj(source, target, 1 << 16)
    stored.seek(0)
    return stored
