"""Postal addresses, read piece by piece: between commas, dots of a letterhead and the ends of short lines."""

import re
from collections.abc import Iterator
from functools import cache

from pipelines.workloads.bep.documents.lexicon import UPPER, faker_modules, terms
from pipelines.workloads.bep.documents.masking import CALLED, WORDS

LONGEST_LINE = 60  # characters of a line of a letterhead, whose address goes on in the next line
MOST_WORDS = 12  # before a comma, of which the last may begin an address
BEGINS = ("box", "street", "part", "numbered")  # kinds of pieces that begin an address, the surest first
MOST_PIECES = 10  # of an address
MOST_PLACES = 3  # district, town, state and the like behind a street
_NAME = (
    rf"(?:[{UPPER}]\w{{0,3}}\.|[{UPPER}][\w'\u2019./&\u00b0\u00ba\u00aa-]*(?<!\.)|\([^()]{{1,20}}\)"
    rf"|(?:{WORDS['address_particles']})\b|[dl]['\u2019]\w+|[a-z]{{1,3}}\.(?= \d))"
)
_WORD = rf"(?:{_NAME}|\d+\.|No:|D:|[\d#][\w./\u00b0\u00ba\u00aa-]*(?<!\.))"
_TOWN = rf"(?:St\.|'s-\w+|[{UPPER}][^\W\d_][\w'\u2019/-]*)(?: {_WORD}){{0,5}}"
POSTED = re.compile(
    rf"(?:(?<![\w-])(?:(?:{WORDS['country_codes']})-)?"
    rf"(?:\d{{5}}(?:-\d{{3}})?|\d{{7}}|\d{{4}}(?: [A-Z]{{2}})?|\d\d-\d{{3}}|\d{{4}}-\d{{3}}|\d{{3}} \d\d) {_TOWN}"
    rf"|(?:{_TOWN},? )?(?:{WORDS['post_codes']})|(?:PIN|CEP|C\.P\.)(?: code)?:? ?[\d-]{{5,9}}|S\(\d{{6}}\)"
    rf"|[{UPPER}][a-z]{{2,}}(?: {_WORD}){{0,2}}(?: ?[-\u2013])? (?:\d{{3}} ?\d{{3}}|\d{{7}}))"
    r"(?=$| [(\u2013-]|[,.:;|\n]| [a-z])",
    re.MULTILINE,
)
# What is an address by itself: more than four or five figures and a word.
CERTAIN = re.compile(WORDS["certain_post_codes"])
SURE = re.compile(WORDS["sure_streets"])
BOX = re.compile(rf"(?i:{WORDS['post_boxes']}) ?(?:n[.\u00ba\u00b0o]* ?)?\d[\d. ]*(?:-\w+)?\w?(?: [{UPPER}].*)?")
PART = re.compile(rf"(?i:{WORDS['address_parts']})|#\d+-\d+(?: [{UPPER}]\w+){{0,4}}")
CODE = re.compile(r"\d{4,6}|\d{5}-\d{3}")  # behind a town
_NUMBER = r"\d{1,5} ?[A-Za-z]?(?:[-/\u2013][\w/.-]+| - \d{1,5})?(?: [A-Z])?(?: (?:bus|bte|app?\.|lok\.|m\.) ?[\w/]+)?"
STREET = re.compile(
    rf"(?:{_NUMBER}(?: (?:bis|ter))? )?(?:(?=.* )(?:{_WORD} ){{0,4}}(?i:{WORDS['streets']})(?: {_WORD}){{0,6}}"
    rf"|(?:{_NAME} ){{0,3}}[\w-]*(?:{WORDS['street_endings']})(?: {_NUMBER}(?:/[\w. /]+)?)?)"
)
NUMBERED = re.compile(
    rf"(?:{_NAME} ){{1,4}}{_NUMBER}|(?i:no?[.\u00ba\u00b0:]* ?)?(?!\d{{5}}){_NUMBER}(?: {_NAME}){{0,5}}"
    rf"|{_NUMBER} (?:bis|ter)|(?i:{WORDS['likely_boxes']})"
)
LEGAL_FORM = re.compile(rf"\b(?:{WORDS['legal_forms']})$")
PLACE = re.compile(rf"(?:(?:{WORDS['near_places']}) )?{_TOWN}(?: ?[/\u2013-] ?[A-Z]{{2}})?")
BETWEEN = re.compile(
    rf", ?\n?| [\u00b7\u2022\u2014] "
    rf"| [-\u2013] (?=(?:[A-Z]{{1,2}}-)?\d{{4,5}} [{UPPER}]|\d+\.?[\u00ba\u00aa])|\n|(?<!No)(?<! D): | ?[|;] ?"
    rf"|(?:(?<=[^\W\d_]{{5}})|(?<=\d{{4}}))\. (?=[{UPPER}])"
)
GOES_ON = re.compile(r", | [\u00b7\u2022\u2013\u2014|-] |,? ?\n")


@cache
def countries() -> frozenset[str]:
    """Return the names of countries of the package Faker, and what stands for some."""
    listed = (getattr(module.Provider, "countries", ()) for module in faker_modules("address"))
    return frozenset(WORDS["countries"]).union(*listed)


def addresses(text: str) -> Iterator[tuple[int, int]]:
    """Yield (begin, end) of the lines of postal addresses, in order."""
    run: list[tuple[int, int]] = []
    place = line = 0
    for gap in [*BETWEEN.finditer(text), None]:
        end = gap.start() if gap else len(text)
        run += [(place, end)] if end > place else []
        if not gap or not GOES_ON.fullmatch(gap[0]) or ("\n" in gap[0] and end - line > LONGEST_LINE):
            yield from _in_run(text, run)
            run = []
        place = gap.end() if gap else end
        line = place if gap and gap[0].endswith("\n") else line


def _in_run(text: str, run: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the lines of the addresses in pieces that follow each other."""
    at = 0
    while at < len(run):
        found = _address(text, run[at : at + MOST_PIECES])
        if found:
            yield from (line.span() for line in re.compile(r"[^\n| ][^\n|]*(?<! )").finditer(text, *found))
        at += sum(begin < found[1] for begin, _ in run[at : at + MOST_PIECES]) if found else 1


def _address(text: str, pieces: list[tuple[int, int]]) -> tuple[int, int] | None:
    """Return (begin, end) of the address that begins in the first piece."""
    begin, kind = _begin(text, *pieces[0])
    kinds, end = [kind], pieces[0][1]
    if not kind:
        return None
    for at, (here, there) in enumerate([(begin, pieces[0][1]), *pieces[1:]]):
        kind = _kind(text[here:there]) if at else kind
        find = POSTED.match if at else POSTED.search
        posted = find(text, here, there) if (at and kind != "box") or kind == "posted" else None
        if kinds[-1] == "place" and {*kinds} & {"street", "numbered", "box"}:
            posted = posted or CODE.fullmatch(text, here, there)
        if posted:
            certain = CERTAIN.search(posted[0]) or ("street" in kinds and kinds[-1] == "place")
            if certain or ({*kinds} - {"part", "place"} and not _is_ordinary(text[begin:there])):
                return begin, _with_countries(text, posted.end(), pieces[at + 1 :])
        if kind == "place" and (text[here - 1] == "\n" or kinds[-MOST_PLACES:].count("place") == MOST_PLACES):
            following = pieces[at + 1 : at + 2]
            kind = kind if any(POSTED.match(text, *it) or CODE.fullmatch(text, *it) for it in following) else ""
        if not kind:
            break
        kinds, end = [*kinds, kind] if at else kinds, there
    end = _with_countries(text, end, pieces[len(kinds) :])
    if "box" in kinds:
        return begin, end
    # Without a post code, a street needs a name, and more behind it in its line.
    line, *more = text[begin:end].split("\n")
    sure = "street" in kinds and SURE.search(line) and "," in line and not _is_ordinary(line)
    number = bool(re.search(r"\d", line)) or more or begin == pieces[0][0] or line.count(",") > 1
    return (begin, begin + len(line)) if sure and number else None


def _is_ordinary(address: str) -> bool:
    """Return whether no word is a name, as in "Stage 4, 2020 Edition"."""
    words = (word.lower() for word in re.findall(r"[^\W\d_]{3,}", address) if not word.isupper())
    return all(word in terms() or word.removesuffix("s") in terms() for word in words)


def _with_countries(text: str, end: int, pieces: list[tuple[int, int]]) -> int:
    """Return the end of an address with the state and the country behind its town."""
    for last in (1, 2):
        names = [text[slice(*piece)].rstrip(".") for piece in pieces[:last]]
        if len(names) == last and names[-1] in countries() and (last == 1 or PLACE.fullmatch(names[0])):
            return pieces[last - 1][0] + len(names[-1])
    return end


def _begin(text: str, begin: int, end: int) -> tuple[int, str]:
    """Return where an address begins in a piece, and what kind of piece it is from there; "" if there is none."""
    words = re.finditer(r"(?:^| )(?!(?:an?|and|at|by|of|the|to|und|im|in)\b)", text[begin:end])
    starts = [begin + word.end() for word in words][-MOST_WORDS:]
    kinds = [
        (start, _kind(text[start:end]))
        for start in starts
        if start == begin or " " in text[start:end] or text[end + 2 : end + 3].islower()  # "3, rue"
    ]
    posted = (match for start in starts if (match := POSTED.match(text, start, end)))
    for match in (each for each in posted if CERTAIN.search(each[0])):
        if match.start() == begin or not match[0][0].isdigit():
            return min([match.start(), *(start for start, kind in kinds if kind == "street")]), "posted"
    if kinds and kinds[0] == (begin, "numbered"):  # "Vossem 15 bus 4"
        return kinds[0]
    start, kind = next((each for kind in BEGINS for each in kinds if each[1] == kind), (begin, ""))
    parts = (each for each, _ in kinds if each < start and PART.fullmatch(text[each:start].rstrip()))
    return min(parts, default=start), kind  # "Unit 6 Mill Lane"


def _kind(piece: str) -> str:
    """Return what a piece of an address is: "box", "part", "street", "numbered" or "place"; "" if it can be none."""
    piece = piece.rstrip(". " if "(" in piece else ". )")
    if re.fullmatch(r"(?:19|20)\d\d", piece):
        return ""
    kinds = {"box": BOX, "part": PART, "street": STREET, "numbered": NUMBERED, "place": PLACE}
    kind = next((kind for kind, pattern in kinds.items() if pattern.fullmatch(piece)), "")
    return "" if kind == "place" and (LEGAL_FORM.search(piece) or CALLED.fullmatch(piece.split()[0])) else kind
