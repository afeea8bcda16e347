"""The text of RTF files: paragraphs, lists, tables and footnotes, without what Word hides."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from common.errors import UserError
from pipelines.workloads.bep.documents.markup import grouped

# A control word with its number, a byte in hexadecimal, another control sign, a brace, line ends, text
TOKEN = re.compile(rb"\\([a-z]{1,32})(-?\d{1,10})? ?|\\'([0-9a-f]{2})|\\([^a-z])|([{}])|[\r\n]+|([^\\{}\r\n]+)", re.I)
TABLES = json.loads(Path(__file__).with_suffix(".json").read_text())
SIGNS: dict[str, str] = TABLES["signs"]  # control words -> text
OMITTED: dict[str, str] = TABLES["omitted"]  # groups that are no text of the document -> the report's words for them
FONTS = {int(number): page for number, page in TABLES["fonts"].items()}  # character sets of fonts -> code pages
PARAGRAPH = {"par", "sect", "page", "\n", "\r"}
NUMBER = re.compile(r"\d|\w[.)]")  # else it is a sign, such as the "o" of a list's second level
MARKS = {"listtext", "pntext"}  # groups with the sign or the number of a list's item


@dataclass(frozen=True)
class _Group:
    omitted: bool = False
    hidden: bool = False
    deleted: bool = False
    in_table: bool = False
    note: bool = False
    mark: bool = False
    page: str = "cp1252"
    after_unicode: int = 1  # characters of fallback behind a Unicode one


def read_rtf(content: bytes, maximum_bytes: int) -> tuple[str, int | None, list[str]]:
    """Return the text, None as the number of pages, and warnings. Raises UserError for a file that ends early."""
    reader = _Reader()
    text = "\n\n".join(grouped(reader.blocks(content)))
    return text, None, [f"{what} left out: {count}" for what, count in reader.left_out.items() if count]


class _Reader:
    def __init__(self) -> None:
        self.left_out = Counter[str]()
        self.now, self.groups, self.fonts = _Group(), list[_Group](), dict[int, str]()
        self.font, self.skipped, self.page = 0, 0, "cp1252"
        self.pieces: list[str] = []
        self.raw = bytearray()  # text in the code page of its font
        self.notes: list[str] = []
        self.cells: list[str] = []
        self.mark = ""  # the sign or the number of an item, or the number of a heading

    def blocks(self, content: bytes) -> Iterator[tuple[str, str]]:
        """Yield (kind, text) of the blocks; kind is "", "item" or "row"."""
        place = 0
        while token := TOKEN.match(content, place):
            place = token.end()
            word, number, byte, sign, brace, text = token.groups()
            if word == b"bin":
                place += max(int(number or 0), 0)
            elif word or sign:
                self.skipped = 0  # fallback of a Unicode sign is text; if missing, nothing is skipped
                if (name := (word or sign).decode("latin-1")) in PARAGRAPH or name == "row":
                    yield from self._ended(name)
                else:
                    self._control(name, int(number) if number else None)
            elif brace:
                self._decode()
                self.skipped = 0
                if brace == b"{":
                    self.groups.append(self.now)
                elif self.groups:
                    self.now = self.groups.pop()
            elif byte or text:
                plain = bytes.fromhex(byte.decode()) if byte else text
                dropped = min(self.skipped, len(plain))
                self.skipped -= dropped
                if self._shown():
                    self.raw += plain[dropped:]
        if self.groups or place < len(content.rstrip(b"\0")):
            raise UserError("cannot be read as RTF: it ends within a group; save it again, as .docx if you can")
        yield from self._ended("par")

    def _shown(self) -> bool:
        return not (self.now.omitted or self.now.hidden or self.now.deleted)

    def _control(self, name: str, number: int | None) -> None:
        self._decode()
        on = number != 0
        if name in OMITTED:
            self.left_out[OMITTED[name]] += bool(OMITTED[name]) and (not self.now.omitted or name == "annotation")
            self.now = replace(self.now, omitted=True)
        elif name == "shptxt":  # a text box, in a group for newer programs
            self.now = replace(self.now, omitted=False)
        elif name in MARKS:
            self.now, self.mark = replace(self.now, mark=True), "\u2022"
        elif name == "footnote":
            self.now = replace(self.now, note=True)
            self.notes.append("")
        elif name in ("v", "deleted"):
            self.left_out["runs of hidden text" if name == "v" else "deletions"] += on and self._shown()
            self.now = replace(self.now, hidden=on) if name == "v" else replace(self.now, deleted=on)
        elif name == "plain":
            self.now = replace(self.now, hidden=False, deleted=False)
        elif name in ("intbl", "pard"):
            self.now = replace(self.now, in_table=name == "intbl")
        elif name == "uc":
            self.now = replace(self.now, after_unicode=max(number or 0, 0))
        elif name == "u" and number is not None:
            self._add(chr(number % 0x10000))
            self.skipped = self.now.after_unicode
        elif name == "cell":
            self.cells.append(" ".join("".join(self.pieces).split()))
            self.pieces.clear()
        elif name in SIGNS:
            self._add(SIGNS[name])
        elif number is None:
            return
        elif name == "ansicpg":
            self.page = f"cp{number}"
            self.now = replace(self.now, page=self.page)
        elif name == "fcharset" and number in FONTS:
            self.fonts[self.font] = f"cp{FONTS[number]}"
        elif name == "f":
            self.font = number
            self.now = replace(self.now, page=self.fonts.get(number, self.page))

    def _add(self, text: str) -> None:
        if self.now.mark:
            self.mark += text
        elif self._shown() and self.now.note and self.notes:
            self.notes[-1] += text
        elif self._shown():
            self.pieces.append(text)

    def _decode(self) -> None:
        if self.raw:
            try:
                self._add(self.raw.decode(self.now.page, "replace"))
            except LookupError as error:
                raise UserError(f"is in an unknown code page, {self.now.page}; save it again as .docx") from error
            self.raw.clear()

    def _ended(self, name: str) -> Iterator[tuple[str, str]]:
        """Yield the paragraph or the row that ends, and its footnotes; within a cell or a note, add a space."""
        self._decode()
        if self.now.omitted:
            return
        if self.now.note or (name != "row" and self.now.in_table and self.groups):
            self._add(" ")
            return
        kind, text = "", "".join(self.pieces)
        if name == "row":
            kind, text = "row", " | ".join(filter(None, self.cells))
            self.cells.clear()
        elif self.mark and text.strip():
            number = self.mark.strip("\u2022 \t")
            kind, before = ("", number) if NUMBER.search(number) else ("item", "\u2022")
            text = f"{before} {text.strip()}"
        self.pieces.clear()
        self.mark = ""
        for each, words in [(kind, text), *(("", note) for note in self.notes)]:
            whole = words.strip(" ").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            if whole.strip():
                yield each, whole
        self.notes.clear()
