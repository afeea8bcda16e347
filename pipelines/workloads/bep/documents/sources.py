"""Documents found in the user's folder, and their text: txt, md, html, rtf, odt, pdf and Word's docx, docm, dotx, dotm.

Nothing outside the folder that the user named is read, and no file expands beyond `maximum_bytes`.
"""

import codecs
import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from common.errors import UserError, as_user_error
from pipelines.workloads.bep.documents import too_large
from pipelines.workloads.bep.documents.markup import read_html, read_odt
from pipelines.workloads.bep.documents.pdf import read_pdf
from pipelines.workloads.bep.documents.rtf import read_rtf
from pipelines.workloads.bep.documents.word import read_docx

WORD_ENDINGS = (".docx", ".docm", ".dotx", ".dotm")
WEB_ENDINGS = (".html", ".htm")
ENDINGS = (".txt", ".md", *WORD_ENDINGS, ".odt", ".rtf", ".pdf", *WEB_ENDINGS)
WAYS = f"give a folder of documents ({', '.join(ENDINGS)}), one such file, or leave data.sources out for embedded ones"
# Kinds of files by their first bytes.
SIGNATURES = {
    b"PK\x03\x04": "a zip archive",
    b"%PDF-": "a PDF",
    b"\xd0\xcf\x11\xe0": "an old or encrypted Office file",
    b"\x1f\x8b": "a gzip archive",
    b"7z\xbc\xaf": "a 7z archive",
    b"Rar!": "a rar archive",
    b"{\\rtf": "an RTF file",
}
BYTE_ORDER_MARKS = {  # UTF-32's little-endian mark comes first, as it begins like UTF-16's
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32-le",
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
HIDDEN = "hidden"
UNREAD = "files of this kind cannot be read"
# Endings of other files -> what to do about them.
REASONS: dict[str, str] = json.loads(Path(__file__).with_suffix(".json").read_text())
DECLARED = re.compile(rb"""charset\s*=\s*["']?([\w.:-]+)""", re.I)
# Encodings that browsers use in place of the declared ones, which have fewer characters.
WIDER = {"iso8859-1": "cp1252", "iso8859-9": "cp1254", "gb2312": "gb18030", "euc_kr": "cp949", "shift_jis": "cp932"}
FRONT_MATTER = re.compile(r"\A---[ \t]*\r?\n.*?^(?:---|\.\.\.)[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)
# ![words](data:image/png;base64,...), [name]: data:..., and <img src="data:...">
PICTURES = re.compile(
    r"!\[[^\]]*\]\(<?data:[^)]*\)|^\[[^\]]+\]:[ \t]*<?data:\S*[ \t]*$|<img\b[^>]*\bsrc=[\"']data:[^>]*>",
    re.MULTILINE | re.I,
)


@dataclass(frozen=True)
class Document:
    """The text of one file."""

    name: str  # its path relative to the user's folder
    text: str  # pages are separated by form feeds
    pages: int | None  # None if the format has no pages
    warnings: tuple[str, ...]
    sha256: str  # of the file


@dataclass(frozen=True)
class Found:
    """Contents of the user's folder, sorted by name."""

    files: dict[str, Path]
    refused: dict[str, str]  # name -> why
    ignored: dict[str, str]  # name -> why


def find(source: str) -> Found:
    """Find the documents of `source`: a single file, or a folder with its subfolders.

    Raises UserError if there is no such folder or file. Symbolic links that lead out of the folder are refused.
    """
    path = Path(source)
    if path.is_file() and path.suffix.lower() in ENDINGS:
        return Found({path.name: path}, {}, {})
    if not path.is_dir():
        wrong = REASONS.get(path.suffix.lower(), UNREAD) if path.exists() else "there is no such folder or file"
        raise UserError(f"data.sources={source}: {wrong}; {WAYS}")
    root = path.resolve()
    files: dict[str, Path] = {}
    refused: dict[str, str] = {}
    ignored: dict[str, str] = {}
    locked: list[OSError] = []
    for folder, below, names in os.walk(path, onerror=locked.append):
        hidden = [name for name in below if name.startswith(".")]
        ignored |= {f"{_name(Path(folder) / name, path)}/": HIDDEN for name in hidden}
        below[:] = [name for name in below if name not in hidden]
        links = [name for name in below if (Path(folder) / name).is_symlink()]  # os.walk does not follow them
        for file in (Path(folder) / name for name in [*names, *links]):
            name = _name(file, path)
            if file.name.startswith((".", "~$")):
                ignored[name] = HIDDEN
            elif file.is_symlink() and not Path(os.path.realpath(file)).is_relative_to(root):
                refused[name] = f"is a symbolic link that leads out of {source}; copy the file into the folder"
            elif file.is_symlink():
                ignored[name] = "a symbolic link within the folder"
            elif file.suffix.lower() not in ENDINGS or not file.is_file():
                ignored[name] = REASONS.get(file.suffix.lower(), UNREAD)
            else:
                files[name] = file
    refused |= {_name(Path(each.filename), path): f"cannot be read: {each.strerror}" for each in locked}
    return Found(dict(sorted(files.items())), dict(sorted(refused.items())), dict(sorted(ignored.items())))


def listed(reasons: Mapping[str, str]) -> list[str]:
    """Return a line for each kind of file and reason: how many there are, and one of them."""
    kinds: dict[tuple[str, str], list[str]] = {}
    for name, why in reasons.items():
        kinds.setdefault(("" if why == HIDDEN else Path(name).suffix.lower(), why), []).append(name)
    return [
        f"not read: {names[0]}{f' and {len(names) - 1:,} more {ending}'.rstrip() if len(names) > 1 else ''}: {why}"
        for (ending, why), names in kinds.items()
    ]


def _name(file: Path, folder: Path) -> str:
    """Return the path relative to `folder`; bytes that are not UTF-8 are replaced, so that reports can show it."""
    return os.fsencode(file.relative_to(folder).as_posix()).decode(errors="replace")


def readable(source: str | None) -> list[Path]:
    """Return the files of `source` that can be read, whatever they hold; none for embedded or missing documents."""
    files = find(source).files.values() if source and Path(source).exists() else []
    return [path for path in files if os.access(path, os.R_OK)]


def read(path: Path, name: str, maximum_bytes: int) -> Document:
    """Read a file, which messages call `name`.

    Raises UserError, one line with the file's name, for a file that is encrypted, damaged, not of the kind its ending
    says, larger than `maximum_bytes` when expanded, or without text.
    """
    with as_user_error(f"{name}: ", of=UserError), as_user_error("cannot be read: ", of=OSError):
        if (size := path.stat().st_size) > maximum_bytes:
            raise too_large(size, maximum_bytes)
        content = path.read_bytes()
        kind = path.suffix.lower()
        _check_kind(content, kind)
        readers = {".pdf": read_pdf, ".md": _read_markdown, ".odt": read_odt, ".rtf": read_rtf}
        readers |= {**dict.fromkeys(WORD_ENDINGS, read_docx), **dict.fromkeys(WEB_ENDINGS, _read_html)}
        text, pages, warnings = readers.get(kind, _read_text)(content, maximum_bytes) if content else ("", None, [])
    if not text.strip():
        scanned = f"has {pages} pages but no text (scanned?); run text recognition (OCR) on it" if pages else "is empty"
        raise UserError(f"{name}: {scanned}")
    return Document(name, text, pages, tuple(warnings), hashlib.sha256(content).hexdigest())


def _check_kind(content: bytes, kind: str) -> None:
    """Refuse a file whose first bytes contradict its ending."""
    found = next((what for start, what in SIGNATURES.items() if content.startswith(start)), None)
    if kind in WORD_ENDINGS and found == SIGNATURES[b"\xd0\xcf\x11\xe0"]:
        raise UserError("is an old or encrypted Office file; save it as .docx without a password")
    archives = dict.fromkeys((*WORD_ENDINGS, ".odt"), "a zip archive")
    expected = {".pdf": "a PDF", ".rtf": "an RTF file", **archives}.get(kind)
    if content and found != expected and not (kind == ".pdf" and b"%PDF-" in content[:1024]):
        reality = f"is {found}" if found else f"is not a {kind.lstrip('.')} file"
        raise UserError(f"{reality} by its first bytes, although its ending is {kind}; rename or remove it")


def _read_markdown(content: bytes, maximum_bytes: int) -> tuple[str, int | None, list[str]]:
    """Read text without the settings in front of it and without pictures that are written out in it."""
    text, pages, warnings = _read_text(content, maximum_bytes)
    for what, pattern in (("front matter", FRONT_MATTER), ("pictures within the text", PICTURES)):
        text, count = pattern.subn("", text)
        warnings += [f"{what} left out: {count}"] if count else []
    return text, pages, warnings


def _read_html(content: bytes, maximum_bytes: int) -> tuple[str, int | None, list[str]]:
    """Read a page: in UTF-8 if it is, whatever it declares, else in the encoding that it declares, as browsers do."""
    declared = DECLARED.search(content, 0, 4096)
    utf8 = b"\x1b" not in content and _is_utf8(content)
    if declared and not utf8 and not content.startswith(tuple(BYTE_ORDER_MARKS)):
        name = declared[1].decode()
        try:
            if not (known := codecs.lookup(name).name).startswith("utf"):  # others of Unicode cannot declare in ASCII
                spare = "ignore" if known.startswith("iso8859") and known in WIDER else "strict"  # controls in ISO 8859
                return read_html(content.decode(WIDER.get(known, known), spare))
        except (LookupError, UnicodeDecodeError) as error:
            raise UserError(f"cannot be decoded as {name}, which it declares; save it again as UTF-8") from error
    text, _, warnings = _read_text(content, maximum_bytes)
    text, pages, left_out = read_html(text)
    return text, pages, [*warnings, *left_out]


def _read_text(content: bytes, maximum_bytes: int) -> tuple[str, int | None, list[str]]:
    """Decode UTF-8, UTF-16 or UTF-32 with a byte order mark, or UTF-16 without; other lines are read as cp1252."""
    marked = (each for each in BYTE_ORDER_MARKS.items() if content.startswith(each[0]))
    mark, encoding = next(marked, (b"", "utf-8"))
    warnings: list[str] = []
    content = content.removeprefix(mark)
    if not mark and b"\0" in content:
        # In UTF-16 of a Western language, every other byte is 0.
        zeros = [content[start::2].count(0) / len(content) for start in (0, 1)]
        if abs(zeros[0] - zeros[1]) < 0.25:
            raise UserError("holds binary data; it is not a text file")
        encoding = "utf-16-be" if zeros[0] > zeros[1] else "utf-16-le"
        warnings.append(f"read as {encoding}, though it has no byte order mark")
    parts = [(content, encoding)]
    if encoding == "utf-8":  # files pasted together can have lines of another encoding
        parts = [(each, "utf-8" if _is_utf8(each) else "cp1252") for each in content.splitlines(keepends=True)]
    try:
        text = "".join(each.decode(way) for each, way in parts)
    except UnicodeDecodeError as error:
        tried = encoding if encoding != "utf-8" else "neither UTF-8 nor cp1252"
        raise UserError(f"cannot be decoded ({tried}): byte {error.start} of a line or of the file") from error
    if others := sum(way == "cp1252" for _, way in parts):
        warnings.append(f"lines that are not UTF-8 and were read as cp1252: {others}")
    return text, text.count("\f") + 1 if "\f" in text else None, warnings


def _is_utf8(content: bytes) -> bool:
    return content.decode(errors="ignore").encode() == content
