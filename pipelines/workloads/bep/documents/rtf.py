"""The text of RTF files by striprtf: paragraphs, lists, tables, text boxes and notes, without what Word hides."""

import codecs
import re

from common.errors import UserError
from pipelines.workloads.bep.documents.markup import grouped

LEFT_OUT = {
    "headers and footers": r"(?:header|footer)[flr]?",
    "comments": "annotation",
    "footnotes": "footnote",
    "runs of hidden text": "v",
    "deletions": "deleted",
}
# Until it is switched off, or its group ends.
HIDDEN = re.compile(r"(?<!\\)\\(v|deleted)(?![a-z0-9-])(?:[^{}]|\{[^{}]*\})*?(?:\\(?:\1)0 ?|(?=\\plain|\}))")
ROW = re.compile(r"\\trowd.*?\\row(?![a-z])", re.DOTALL)
PARAGRAPH, LINE = re.compile(r"\\par(?![a-z]) ?"), re.compile(r"\\line(?![a-z]) ?")
BOX = re.compile(r"(?:\\\*)?\\shp(?:inst)?(?![a-z])|\\shptxt(?![a-z]) ?")
NOTE = re.compile(r"\{\\footnote((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*+)\}(.*?\\par)(?![a-z])", re.DOTALL)
ITEM = re.compile(r"[^\w\s]\t")  # the sign of a list's item; a number stays as it is


def read_rtf(content: bytes, maximum_bytes: int) -> tuple[str, int | None, list[str]]:
    """Return the text, None as the number of pages, and warnings. Raises UserError for a file that ends early."""
    from striprtf.striprtf import remove_pict_groups, rtf_to_text

    text = remove_pict_groups(content.decode("latin-1"))
    plain = re.sub(r"\\[\\{}]", "", text)
    if plain.count("{") > plain.count("}"):
        raise UserError("cannot be read as RTF: it ends within a group; save it again, as .docx if you can")
    for page in re.findall(r"\\ansicpg(\d+)", text):
        try:
            codecs.lookup(f"cp{page}")
        except LookupError as error:
            raise UserError(f"is in an unknown code page, cp{page}; save it again as .docx") from error
    moved = 1
    while moved:  # one note of each paragraph
        text, moved = NOTE.subn(r"\2 {\1\\par }", text)
    counts = {what: len(re.findall(rf"\\{word}(?![a-z0-9-])", text)) for what, word in LEFT_OUT.items()}
    text = HIDDEN.sub("", re.sub("[\x80-\xff]", lambda byte: f"\\'{ord(byte[0]):02x}", text))
    text = BOX.sub(lambda word: r"\par " if word[0].startswith(r"\shptxt") else "", text)
    text = ROW.sub(lambda row: PARAGRAPH.sub(r"\\tab ", row[0]), text)
    found = rtf_to_text(LINE.sub(r"\\'0b", text), errors="replace")
    found = found.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    blocks = (_block(line.strip(" ").replace("\v", "\n")) for line in found.split("\n") if line.strip())
    return "\n\n".join(grouped(blocks)), None, [f"{what} left out: {count}" for what, count in counts.items() if count]


def _block(line: str) -> tuple[str, str]:
    """Return (kind, text) of a paragraph, an item or a row."""
    if line.endswith("|"):
        cells = (" ".join(cell.split()) for cell in line.split("|"))
        return "row", " | ".join(filter(None, cells))
    return ("item", f"\u2022 {line[2:].strip()}") if ITEM.match(line) else ("", line)
