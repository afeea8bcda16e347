"""The text of a firm's documents: txt, md, docx and pdf. Pages are separated by form feeds, where there are pages.

Nothing outside of the folder that the user named is read, and no file expands beyond `maximum_bytes`.
"""

import codecs
import hashlib
import io
import logging
import os
import shutil
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from common.errors import UserError

ENDINGS = (".txt", ".md", ".docx", ".pdf")
WAYS = f"give a folder of documents ({', '.join(ENDINGS)}), one such file, or leave data.sources out for embedded ones"
# What a file is by its first bytes, whatever its ending says.
SIGNATURES = {
    b"PK\x03\x04": "a zip archive",
    b"%PDF-": "a PDF",
    b"\xd0\xcf\x11\xe0": "an old or encrypted Office file",
    b"\x1f\x8b": "a gzip archive",
    b"7z\xbc\xaf": "a 7z archive",
    b"Rar!": "a rar archive",
    b"{\\rtf": "an RTF file",
}
BYTE_ORDER_MARKS = {  # UTF-32's little-endian mark begins as UTF-16's does
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32-le",
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"


@dataclass(frozen=True)
class Document:
    """One file's text."""

    name: str  # the path below the user's folder
    text: str  # pages separated by form feeds
    pages: int | None  # None where the format has none
    warnings: tuple[str, ...]
    sha256: str  # of the file


@dataclass(frozen=True)
class Found:
    """What stands in the user's folder, by name in order."""

    files: dict[str, Path]
    refused: dict[str, str]  # name -> why
    ignored: dict[str, str]  # name -> why


def find(source: str) -> Found:
    """The documents that `source`, a folder with all below it or one file, stands for.

    Raises UserError if there is no such folder or file. A symbolic link that leads out of the folder is refused.
    """
    path = Path(source)
    if path.is_file() and path.suffix.lower() in ENDINGS:
        return Found({path.name: path}, {}, {})
    if not path.is_dir():
        wrong = "this kind of file is not read" if path.exists() else "there is no such folder or file"
        raise UserError(f"data.sources={source}: {wrong}; {WAYS}")
    root, files, refused, ignored = path.resolve(), {}, {}, {}
    for folder, below, names in os.walk(path):
        hidden = [name for name in below if name.startswith(".")]
        ignored |= {f"{_name(Path(folder) / name, path)}/": "hidden" for name in hidden}
        below[:] = [name for name in below if name not in hidden]
        links = [name for name in below if (Path(folder) / name).is_symlink()]  # os.walk does not follow them
        for file in (Path(folder) / name for name in [*names, *links]):
            name = _name(file, path)
            if file.name.startswith((".", "~$")):
                ignored[name] = "hidden"
            elif file.is_symlink() and not file.resolve().is_relative_to(root):
                refused[name] = f"is a symbolic link that leads out of {source}; copy the file into the folder"
            elif file.is_symlink():
                ignored[name] = "a symbolic link within the folder"
            elif file.suffix.lower() not in ENDINGS or not file.is_file():
                ignored[name] = "not a kind of file that is read"
            else:
                files[name] = file
    return Found(*(dict(sorted(part.items())) for part in (files, refused, ignored)))


def _name(file: Path, folder: Path) -> str:
    """The path below `folder`; bytes that are not UTF-8 are no text to write into a report."""
    return os.fsencode(file.relative_to(folder).as_posix()).decode(errors="replace")


def read(path: Path, name: str, maximum_bytes: int) -> Document:
    """The text of a file, which is `name` in messages.

    Raises UserError, one line with the file's name, for a file that is encrypted, damaged, not what its ending says,
    larger than `maximum_bytes` when it is expanded, or without text.
    """
    try:
        size = path.stat().st_size
        if size > maximum_bytes:
            raise _too_large(size, maximum_bytes)
        content = path.read_bytes()
        kind = path.suffix.lower()
        _check_kind(content, kind)
        reader = {".docx": _read_docx, ".pdf": _read_pdf}.get(kind, _read_text)
        text, pages, warnings = reader(content, maximum_bytes)
    except OSError as error:
        raise UserError(f"{name}: cannot be read: {error.strerror or error}") from error
    except UserError as error:
        raise UserError(f"{name}: {error}") from error
    if not text.strip():
        scanned = f"has {pages} pages but no text (scanned?); run a text recognition over it" if pages else "is empty"
        raise UserError(f"{name}: {scanned}")
    return Document(name, text, pages, tuple(warnings), hashlib.sha256(content).hexdigest())


def _too_large(size: int, maximum_bytes: int) -> UserError:
    return UserError(f"has {size:,} bytes when expanded, more than data.maximum_bytes={maximum_bytes}")


def _check_kind(content: bytes, kind: str) -> None:
    """Refuse a file whose first bytes contradict its ending."""
    found = next((what for start, what in SIGNATURES.items() if content.startswith(start)), None)
    if kind == ".docx" and found == SIGNATURES[b"\xd0\xcf\x11\xe0"]:
        raise UserError("is an old or encrypted Office file; save it as .docx without a password")
    expected = {".docx": "a zip archive", ".pdf": "a PDF"}.get(kind)
    if content and found != expected and not (kind == ".pdf" and b"%PDF-" in content[:1024]):
        reality = f"is {found}" if found else f"is not a {kind.lstrip('.')} file"
        raise UserError(f"{reality} by its first bytes, whatever its ending {kind} says; rename or remove it")


def _read_text(content: bytes, maximum_bytes: int) -> tuple[str, int | None, list[str]]:
    """UTF-8, UTF-16 or UTF-32 with a byte order mark, UTF-16 without; lines that are not UTF-8 are cp1252's."""
    mark, encoding = next(
        ((mark, name) for mark, name in BYTE_ORDER_MARKS.items() if content.startswith(mark)), (b"", "utf-8")
    )
    content, warnings = content.removeprefix(mark), []
    if not mark and b"\0" in content:
        # Of UTF-16 in a Western language, every other byte is 0.
        zeros = [content[start::2].count(0) / len(content) for start in (0, 1)]
        if abs(zeros[0] - zeros[1]) < 0.25:
            raise UserError("holds binary data; it is no text file")
        encoding = "utf-16-be" if zeros[0] > zeros[1] else "utf-16-le"
        warnings.append(f"read as {encoding}, though it has no byte order mark")
    try:
        if encoding != "utf-8":
            text = content.decode(encoding)
        else:
            text, others = _decode_lines(content)
            if others:
                warnings.append(f"lines that are not UTF-8 and were read as cp1252: {others}")
    except UnicodeDecodeError as error:
        tried = encoding if encoding != "utf-8" else "neither UTF-8 nor cp1252"
        raise UserError(f"cannot be decoded ({tried}): byte {error.start} of a line or of the file") from error
    pages = text.count("\f") + 1 if "\f" in text else None
    return text, pages, warnings


def _decode_lines(content: bytes) -> tuple[str, int]:
    """Text, and how many lines were cp1252: files that were pasted together have both encodings."""
    lines, others = [], 0
    for line in content.splitlines(keepends=True):
        try:
            lines.append(line.decode())
        except UnicodeDecodeError:
            lines.append(line.decode("cp1252"))
            others += 1
    return "".join(lines), others


def _read_docx(content: bytes, maximum_bytes: int) -> tuple[str, int | None, list[str]]:
    import docx

    try:
        body = docx.Document(_unpacked(content, maximum_bytes)).element.body
        text = "\n\n".join(_grouped(_blocks(body)))
    except UserError:
        raise
    except Exception as error:  # the libraries below raise a dozen unrelated types for what is wrong in a file
        raise UserError(f"cannot be read as a Word document: {_reason(error)}; save it again as .docx") from error
    notes = sum(1 for _ in body.iter(f"{WORD}footnoteReference", f"{WORD}endnoteReference"))
    return text, None, [f"footnotes and endnotes left out: {notes}"] if notes else []


def _unpacked(content: bytes, maximum_bytes: int) -> io.BytesIO:
    """The same archive, stored without compression.

    The sizes that an archive states are added up before anything is expanded, and no member is expanded beyond what
    it states: a library that reads one in a single call would expand it whole, whatever it states.
    """
    with zipfile.ZipFile(io.BytesIO(content)) as packed:
        members = packed.infolist()
        size = sum(member.file_size for member in members)
        if size > maximum_bytes:
            raise _too_large(size, maximum_bytes)
        if any(member.flag_bits & 1 for member in members):
            raise UserError("is encrypted; save it without a password")
        if "[Content_Types].xml" not in packed.namelist() or "word/document.xml" not in packed.namelist():
            raise UserError("is a zip archive, but no Word document; rename it, or unpack it")
        stored = io.BytesIO()
        with zipfile.ZipFile(stored, "w") as copy:
            for member in members:
                with packed.open(member) as source, copy.open(member.filename, "w") as target:
                    shutil.copyfileobj(source, target, 1 << 16)
    stored.seek(0)
    return stored


def _blocks(parent) -> Iterator[tuple[str, str]]:
    """(kind, text) of what stands in a body, a cell or a text box, in its order; kind is "", "item" or "row"."""
    for element in parent.iterchildren():
        if element.tag == f"{WORD}p":
            inner = []
            text = "".join(_runs(element, inner)).strip(" ")
            if text.strip():
                item = _is_item(element)
                yield ("item", f"\u2022 {text}") if item else ("", text)
            for box in inner:
                yield from _blocks(box)
        elif element.tag == f"{WORD}tbl":
            for row in _rows(element):
                yield "row", row
        elif element.tag in (f"{WORD}sdt", f"{WORD}sdtContent", f"{WORD}ins", f"{WORD}moveTo", f"{WORD}customXml"):
            yield from _blocks(element)


def _grouped(blocks: Iterator[tuple[str, str]]) -> list[str]:
    """Paragraphs; items of one list and rows of one table are lines of one."""
    paragraphs, before = [], ""
    for kind, text in blocks:
        if kind and kind == before:
            paragraphs[-1] += f"\n{text}"
        else:
            paragraphs.append(text)
        before = kind
    return paragraphs


def _runs(element, boxes: list) -> Iterator[str]:
    """The text of a paragraph, what is in links, content controls and insertions too; text boxes are set aside."""
    plain = {"tab": "\t", "ptab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}
    for child in element.iterchildren():
        if child.tag == f"{WORD}t":
            yield child.text or ""
        elif child.tag == f"{WORD}txbxContent":
            boxes.append(child)
        elif isinstance(child.tag, str) and child.tag.startswith(WORD) and child.tag[len(WORD) :] in plain:
            yield plain[child.tag[len(WORD) :]]
        # A fallback repeats what stands before it; of tracked changes, what was moved away or deleted is gone.
        elif child.tag not in (FALLBACK, f"{WORD}pPr", f"{WORD}del", f"{WORD}moveFrom"):
            yield from _runs(child, boxes)


def _is_item(paragraph) -> bool:
    style = (paragraph.style or "").lower()
    numbered = paragraph.pPr is not None and paragraph.pPr.numPr is not None
    return style.startswith("listbullet") or (numbered and not style.startswith("heading"))


def _rows(table) -> Iterator[str]:
    """The cells of each row that have text, merged ones where they begin."""
    for row in table.iter(f"{WORD}tr"):
        if next(row.iterancestors(f"{WORD}tbl")) is not table:
            continue  # of a table within a cell, which is that cell's text
        texts = []
        for cell in row.iter(f"{WORD}tc"):
            if next(cell.iterancestors(f"{WORD}tr")) is row and not _continues(cell):
                texts.append(" ".join(" ".join(text.split()) for _, text in _blocks(cell)))
        if any(texts):
            yield " | ".join(filter(None, texts))


def _continues(cell) -> bool:
    """Whether a cell is part of one that began above it or beside it."""
    merges = cell.findall(f"{WORD}tcPr/{WORD}vMerge") + cell.findall(f"{WORD}tcPr/{WORD}hMerge")
    return any(merge.get(f"{WORD}val", "continue") == "continue" for merge in merges)


class _Messages(logging.Handler):
    def __init__(self):
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def _read_pdf(content: bytes, maximum_bytes: int) -> tuple[str, int | None, list[str]]:
    import pypdf

    limits = ("zlib", "lzw", "run_length", "array_based_stream", "brotli")
    caps = {f"{limit}_maximum_output_length": maximum_bytes for limit in limits}
    log, messages = logging.getLogger("pypdf"), _Messages()
    propagate, log.propagate = log.propagate, False  # told in the report instead
    log.addHandler(messages)
    pages: list[str] = []
    try:
        with pypdf.apply_configuration(**caps):
            reader = pypdf.PdfReader(io.BytesIO(content))
            if reader.is_encrypted and not _opens(reader):
                raise UserError("is encrypted; save it without a password")
            size = 0
            for page in reader.pages:
                pages.append(page.extract_text().replace("\f", "\n").strip("\n"))
                size += len(pages[-1])
                if size > maximum_bytes:
                    raise _too_large(size, maximum_bytes)
    except UserError:
        raise
    except Exception as error:  # "broken PDF files might cause other exceptions", its documentation says
        raise UserError(f"cannot be read as a PDF: {_reason(error)}; print it to a new PDF") from error
    finally:
        log.removeHandler(messages)
        log.propagate = propagate
    warnings = [f"problems met in reading: {len(messages.texts)}, as {messages.texts[0]!r}"] if messages.texts else []
    empty = sum(not page.strip() for page in pages)
    if empty:
        warnings.append(f"pages without text (scanned, or pictures only): {empty} of {len(pages)}")
    return "\f".join(pages), len(pages), warnings


def _opens(reader) -> bool:
    """Whether the empty password opens it: many are encrypted only to forbid printing."""
    import pypdf

    try:
        return reader.decrypt("") != pypdf.PasswordType.NOT_DECRYPTED
    except pypdf.errors.DependencyError:  # AES needs a package that is not installed
        return False


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
