"""Removal of what could reach a person, open a door, or name somebody.

E-mail addresses, telephone numbers and URLs become one character each, which the model reads as a special token; the
rarer kinds become a word in angle brackets. What the rules find and miss stands in docs/bep.md.
"""

import ipaddress
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from models.plans.characters import MASKS

# By the time of masking, a text's own private-use characters have been removed.
EMAIL, TELEPHONE, URL = MASKS
IBAN, ADDRESS, SECRET, NAME = "<iban>", "<address>", "<secret>", "<name>"
# Words of names, labels and addresses, and the lengths of account numbers by country (SWIFT's register of IBAN).
WORDS = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))

_LOCAL = r"(?<![\w.+-])[\w+][\w.+'-]{0,63}"
EMAILS = re.compile(rf"(?:mailto:)?{_LOCAL}{WORDS['at']}(?:[\w-]+{WORDS['dot']})+[a-z]{{2,}}\b", re.I)
# Without a scheme, only domains whose last part is not a file ending: model.v2.ifc is a file name.
_REST = r"[^\s<>|\"]*[^\s<>|\".,;:!?)\]}']"
URLS = re.compile(
    rf"\b(?:(?:https?|ftps?|sftp|file|smb)://|www\.){_REST}"
    rf"|(?<![\w./\\@-])(?:[A-Za-z0-9-]+\.)+(?:{WORDS['domains']})(?:\.[a-z]{{2}})?\b(?![.-]?\w)(?:/{_REST})?"
)
_WIDE = r"(?: ?[-/.()\u2013]{1,2} ?| )?"  # within one that a label stands before
_EXTENSION = rf"(?:,? ?(?:x|#|(?i:{WORDS['extensions']})\.?) ?\d{{1,5}})?"
_GAP = r"(?:[ .-]?[()]?[ .-]?|/(?!0))"  # within a number; a slash with spaces around it stands between two
# A telephone number is not part of a longer code; standards, scales and dates have other forms.
TELEPHONES = re.compile(
    rf"(?<![\w.:/+#-])(?:"  # +44 (0)20 7946 0123/24/25/26
    rf"(?:\(\+\d{{1,3}}\)(?= ?\d\d)|\+\d)(?:{_GAP}\d){{7,14}}+(?:\d{{0,3}}(?:[/-]\d{{1,4}})*+(?!\w))?{_EXTENSION}"
    rf"|(?:{'|'.join(WORDS['telephone_forms'].values())}){_EXTENSION}(?!\w|[.:-]\w))"
)
_MONTH = r"[./ -](?:0?[1-9]|1[012])[./ -]"
_DATE = rf"(?:(?:19|20)\d\d(?:{_MONTH}[0-3]?\d|(?:0[1-9]|1[012])[0-3]\d)|[0-3]?\d{_MONTH}(?:19|20)\d\d)(?!\d)"
# Figures without a label, a zero or a sign, which may be a sum: only behind a name, in its line.
BARE = re.compile(
    rf"(?:[|-] |[^\W\d_],? |\()(?!{_DATE})(?P<it>{'|'.join(WORDS['bare_telephones'])})(?= ?(?:[|)\n]|- |$))"
)
LABELLED = re.compile(  # or behind "Call Ada on"
    rf"\b(?:{WORDS['telephone_labels']}(?: (?:(?:de|da|del|der|do|of) [^\W\d]+|arch\.|kierownika)){{0,2}}(?: is)?"
    rf" ?[:.]? ?\|? ?|{WORDS['call']}(?!\d(?:{_WIDE}\d){{5,14}}+ ?(?:{WORDS['measured']}|{WORDS['counted']})))"
    rf"(?!{_DATE})(?P<it>[+(]{{0,2}}\d(?:{_WIDE}\d){{5,14}}{_EXTENSION}(?!\w))",
    re.I,
)
CALLED = re.compile(
    rf"(?i)(?:[\w.]+ )?{WORDS['telephone_labels']}(?: ?[/+&] ?{WORDS['telephone_labels']})?|{WORDS['contact_headings']}"
)
WORD = re.compile(r"[^\W\d_]{4}")  # in no cell of a column of telephones
NUMBERS = re.compile(rf"(?P<date>{_DATE})|[+(]{{0,2}}\d(?:{_WIDE}\d){{5,14}}{_EXTENSION}")
# What follows a number in a list: another one, or the last digits that differ ("020 7946 0123/24").
LISTED = re.compile(
    rf"{TELEPHONE} ?(?:[/,;&]|or|and|und|et|og|y|e) ?"
    rf"(?P<it>(?:[+(]?\d(?:{_GAP}\d){{5,14}}|\d{{1,4}}(?![\d.%]| ?[A-Za-z]))(?!\w))"
)

IBANS = re.compile(
    "|".join(rf"\b{country}\d\d(?: ?[A-Z0-9]){{{length - 4}}}\b" for country, length in WORDS["iban_lengths"].items())
)
IPV4 = re.compile(r"(?<![\w.:/-])(?:\d{1,3}\.){3}\d{1,3}(?:/\d{1,2})?(?::\d{2,5})?(?![\w-]|\.\d)")
IPV6 = re.compile(r"(?<![\w:.])(?:[0-9a-f]{0,4}:){2,7}[0-9a-f]{0,4}(?:/\d{1,3})?(?![\w:])", re.I)
SMALL = 32  # four numbers below this are the number of a heading or a version, unless a word says otherwise
NETWORK = re.compile(r"\b(?:ip|address|server|host|gateway|subnet|dns|vpn|firewall|router|nas|printer)\b", re.I)
# \\server\share, C:\folder, /home/login; a space belongs to a path only before a backslash or a file's ending.
PATHS = re.compile(
    r"(?:\\\\[\w.$-]+|\b[A-Z]:)(?:\\(?:[^\s\\|<>\"]|(?<=\S) (?=[^\\|<>\":\n]{0,40}\\(?!\\)))*)+"
    r"(?:(?: [\w-]+){1,3}\.[a-z]{3,4}\b|(?<![.,;:)]))|(?<![\w./])/(?:home|Users)/[^\s|<>\"]*[^\s|<>\".,;:)]"
)
LABELLED_SECRETS = re.compile(rf"\b{WORDS['before_secrets']}[\"'`]?(?P<it>[^\s\"'`|]*[^\s\"'`|.,;:)])", re.I)
KEYS = re.compile("|".join(WORDS["key_forms"]), re.DOTALL)


class Masked(NamedTuple):
    """A part of a text that was masked."""

    kind: str
    line: int  # from 1, of the text without headers, footers and contents
    text: str
    context: str  # the line around it


@dataclass
class Masker:
    """Replaces parts of a text, except those to keep, and remembers them."""

    keep: Collection[tuple[str, str]] = ()  # (kind, text)
    found: list[Masked] = field(default_factory=list)
    tags: bytes = b""  # a number for each character of the text, which moves with it; 0 for those of masks

    def spans(self, text: str, kind: str, mask: str, spans: Iterable[tuple[int, int]]) -> str:
        """Replace what stands at (begin, end), in order."""
        pieces, tags, place = [], [], 0
        for begin, end in spans:
            if begin >= place and end > begin and (kind, text[begin:end]) not in self.keep:
                line = text.rfind("\n", 0, begin) + 1
                before, after = text[max(line, begin - 40) : begin], text[end : end + 40].partition("\n")[0]
                around = f"{before}[{text[begin:end]}]{after}"
                self.found.append(Masked(kind, text.count("\n", 0, begin) + 1, text[begin:end], around))
                pieces += [text[place:begin], mask]
                tags += [self.tags[place:begin], bytes(len(mask))]
                place = end
        self.tags = b"".join([*tags, self.tags[place:]])
        return "".join([*pieces, text[place:]])

    def matches(
        self, text: str, kind: str, mask: str, pattern: re.Pattern[str], is_one: Callable[[re.Match[str]], bool] = bool
    ) -> str:
        """Replace the matches that are ones of a kind, or their group "it" if the pattern has one."""
        group = "it" if "it" in pattern.groupindex else 0
        return self.spans(text, kind, mask, (match.span(group) for match in filter(is_one, pattern.finditer(text))))


def mask_secrets(text: str, masker: Masker) -> str:
    """Mask addresses, numbers of accounts and telephones, paths, keys and passwords."""
    for kind, mask, pattern, is_one in RULES:  # in this order: a URL may hold what looks like another kind
        text = masker.matches(text, kind, mask, pattern, is_one)
    while (further := masker.matches(text, "telephone", TELEPHONE, LISTED)) != text:  # one further in a list
        text = further
    cells = [*columns(text)]
    called = {heading for heading, *cell in cells if heading and TELEPHONE in (heading, text[slice(*cell)].strip())}
    called -= {heading for heading, *cell in cells if WORD.search(text, *cell)}
    reached = (cell for heading, *cell in cells if heading in called or CALLED.fullmatch(heading))
    numbers = (match.span() for cell in reached for match in NUMBERS.finditer(text, *cell) if not match["date"])
    text = masker.spans(text, "telephone", TELEPHONE, numbers)
    known = [re.sub(r"\D", "", each.text) for each in masker.found if each.kind == "telephone"]
    written = ((it.span(), re.sub(r"^\D*0+|\D", "", it[0])) for it in NUMBERS.finditer(text) if not it["date"])
    again = (span for span, figures in written if len(figures) > 6 and any(it.endswith(figures) for it in known))
    return masker.spans(text, "telephone", TELEPHONE, again)


def written(*forms: str) -> re.Pattern[str]:
    """Return the pattern of texts as they stand in a document; in one of several words, capitals do not matter."""
    said = (r"\s+".join(map(re.escape, form.split())) for form in forms)
    either = "|".join(rf"(?i:{each})" if "\\s+" in each else each for each in said)
    return re.compile(rf"(?<!\w)(?:{either})(?!\w)")


def columns(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield the heading, begin and end of each cell of the tables, whose rows have cells between bars.

    In a table's first row, which may have no headings, the heading of a cell is the cell before it.
    """
    headings: list[str] = []
    place = 0
    for line in text.split("\n"):
        cells = [(cell[0].strip(), place + cell.start(), place + cell.end()) for cell in re.finditer(r"[^|]+", line)]
        if len(cells) < 2:
            headings = []
        else:
            first = not headings or len(cells) > len(headings) + 1
            named = headings if not first else [""] + [cell for cell, *_ in cells]
            yield from ((heading, begin, end) for heading, (_, begin, end) in zip(named, cells, strict=False))
            headings = [cell for cell, *_ in cells] if first else headings
        place += len(line) + 1


def _is_iban(match: re.Match[str]) -> bool:
    """Return whether the check digits are right (ISO 13616)."""
    plain = match[0].replace(" ", "")
    return int("".join(str(int(c, 36)) for c in plain[4:] + plain[:4])) % 97 == 1


def _is_ipv4(match: re.Match[str]) -> bool:
    parts = [int(part) for part in re.findall(r"\d+", match[0])[:4]]
    line = match.string.rfind("\n", 0, match.start()) + 1
    said = NETWORK.search(match.string, max(line, match.start() - 60), match.start())
    return max(parts) < 256 and (max(parts) >= SMALL or said is not None)


def _is_ipv6(match: re.Match[str]) -> bool:
    try:
        ipaddress.IPv6Interface(match[0])
    except ValueError:
        return False
    return len(match[0]) > 6


def _is_behind_a_name(match: re.Match[str]) -> bool:
    """Return whether two words like "Ada Lovelace", and nothing that is measured or paid, stand in the line before."""
    line = match.string.rfind("\n", 0, match.start()) + 1
    before, behind = match.string[line : match.start("it")], match.string[match.end() :][:12].partition("\n")[0]
    named = any(a.istitle() and b.istitle() for a, b in pairwise(re.findall(r"[^\W\d_]{2,}", before)))
    return named and not re.search(WORDS["measured"], before + behind, re.I)


def _is_secret(match: re.Match[str]) -> bool:
    """Return whether what stands after "password:" is more than a plain word."""
    word = match["it"]
    return word != SECRET and len(word) >= 4 and not (word.isalpha() and (word.islower() or word.istitle()))


RULES: tuple[tuple[str, str, re.Pattern[str], Callable[[re.Match[str]], bool]], ...] = (
    ("key", SECRET, KEYS, bool),
    ("key", SECRET, LABELLED_SECRETS, _is_secret),
    ("email", EMAIL, EMAILS, bool),
    ("url", URL, URLS, bool),
    ("iban", IBAN, IBANS, _is_iban),
    ("path", ADDRESS, PATHS, bool),
    ("ip", ADDRESS, IPV4, _is_ipv4),
    ("ip", ADDRESS, IPV6, _is_ipv6),
    ("telephone", TELEPHONE, TELEPHONES, bool),
    ("telephone", TELEPHONE, LABELLED, bool),
    ("telephone", TELEPHONE, BARE, _is_behind_a_name),
)
