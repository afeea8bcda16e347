"""Names of persons, by evidence; and addresses, project numbers, clients and sites, by their form or their labels.

Evidence of a person is a known name, a title, a label, the column of a table, or a list of people. It is added up for
each run of capitalised words; ordinary words, terms of building, firms and places count against it. Only a person shown
by strong evidence is looked for elsewhere by surname, given name or initials. What a label names is a number or a name
of the project, and is masked wherever the document repeats it.
"""

import importlib
import pkgutil
import re
from collections import Counter
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from pipelines.workloads.bep.documents.masking import ADDRESS, WORDS, Masker, columns

HERE = Path(__file__)
UPPER = "".join(filter(str.isupper, map(chr, [*range(0x250), *range(0x1E00, 0x1F00)])))
_LETTER = r"[^\W\d_]"
_PARTICLE = WORDS["particles"]
_WORD = rf"(?:(?:al|el|as|ash|an|ar)-|[dlODL]['\u2019])?[{UPPER}]{_LETTER}+(?:[-'\u2019]{_LETTER}+)*"
_INITIAL = rf"[{UPPER}]\.(?:[ -]?[{UPPER}]\.)*"
_NEXT = rf"(?: |(?<=\.))(?:{_PARTICLE} ){{0,3}}(?:{_WORD}|{_INITIAL}|[{UPPER}]\b)"
RUN = re.compile(rf"(?<![\w@./\\-])(?:(?:{_PARTICLE} ){{0,2}}{_WORD}|{_INITIAL})(?:{_NEXT}){{0,7}}(?![\w@\\])")
PIECE = re.compile(rf"((?:{_PARTICLE} ){{0,3}})({_WORD}|{_INITIAL}|[{UPPER}]\b)")
TITLE = re.compile(rf"(?:(?<![\w.])(?:{WORDS['titles']})\.?(?: |(?<=\.)))+")
LABEL = re.compile(
    rf"(?<![\w-])(?:(?P<strong>(?i:{WORDS['labels']}))|(?P<weak>(?i:{WORDS['roles']})))"
    r"(?: from [^:|.\n]{0,20}| \([^)]*\))?(?:[ ]?:|[ ](?=-[ ])|$)"
)
STRONG = re.compile(rf"(?:(?:project|team|model|key|client|current) )?(?:{WORDS['labels']})(?:\(s\))?", re.I)
WEAK = re.compile(rf"(?:{WORDS['roles']})", re.I)
USERS = re.compile(rf"(?:{WORDS['users']})", re.I)
LOGIN = re.compile(r"(?<!\S)[a-z][\w.-]{3,}(?!\S)")
USER = re.compile(rf"\b(?i:{WORDS['users']}) ?[:=] ?(?P<user>[\w.-]{{3,}})")
FIRM = re.compile(rf"(?:{'|'.join(WORDS['firms'])})(?!\w)", re.I)
PLACE = re.compile(
    rf"(?:^|[^\w])(?:{WORDS['before_places']}|\w+(?:straße|strasse|straat|gasse))\.? (?:(?:de|du|des|di|della|la) )?$",
    re.I,
)
# Wei, Weiming, Min-jun
EASTERN = re.compile(rf"(?:{WORDS['eastern_syllables']}){{1,2}}|{_LETTER}{{2,5}}-{_LETTER}{{2,6}}", re.I)
INVERTED = re.compile(
    rf"(?<![\w-])(?<![{UPPER}]\.)((?:{_PARTICLE} ){{0,3}}{_WORD})(?=, ({_WORD}|{_INITIAL})(?! [{UPPER}]|[\w@]))"
)
SUFFIXES = ("Jr", "Sr", "II", "III", "IV")
ENDS = re.compile(rf".{{2,}}(?:{WORDS['surname_ends']})", re.I)
ENOUGH, STRONG_ENOUGH = 3, 4  # evidence that makes a name, and that makes it one everywhere in the document
LONGEST_LIST = 500  # characters behind a label
LONGEST_ITEM = 60  # characters of a line in a list of persons
FEWEST_TO_PROPAGATE = 3  # letters of a name that is looked for alone
SLOTS = {"project": "<project>", "client": "<client>", "site": "<site>"}
# In masking.json, @ stands for capital letters.
_FORMS = "|".join(WORDS["address_forms"]).replace("[@", f"[{UPPER}")
ADDRESSES = re.compile(rf"(?<![\w/-])(?:{_FORMS})", re.MULTILINE)
_BEFORE = r"(?:^|\||(?<=[.;] ))[ \t#*\d.]{0,8}"
LABELS = {
    kind: re.compile(
        rf"{_BEFORE}(?i:{WORDS[f'{words}_labels']}) ?(?::? ?\||:) ?(?P<it>{value})(?=[ \t]*(?:\||$)|\.$|\. |, [a-z])",
        re.MULTILINE,
    )
    for kind, words, value in (
        ("address", "address", r"[^|\n]*\d[^|\n]*?"),
        ("project", "number", r"(?=[\w./-]*\d)[\w./-]{3,30}"),
        ("client", "client", rf"(?=[{UPPER}\d])[^|\n:,]{{4,80}}?"),
        ("site", "site", rf"(?=[{UPPER}\d])[^|\n:]{{4,100}}?"),
    )
}


@cache
def known_names() -> tuple[frozenset[str], frozenset[str]]:
    """Return given names and surnames in Latin letters: those of the package Faker and of masking.json."""
    from faker.providers import person

    kinds: tuple[set[str], set[str]] = set(WORDS["given_names"]), set(WORDS["surnames"])
    for module in pkgutil.iter_modules(person.__path__):
        provider = importlib.import_module(f"{person.__name__}.{module.name}").Provider
        for attribute in dir(provider):
            values = getattr(provider, attribute) if "_name" in attribute else None
            if isinstance(values, tuple | list | dict):
                kinds[attribute.startswith("last")].update(word for value in values for word in str(value).split())
    given, surnames = (frozenset(filter(re.compile(_WORD).fullmatch, names)) for names in kinds)
    return given, surnames


@cache
def terms() -> frozenset[str]:
    """Return the words, in lower case, of terms.txt, of the embedded documents and of Faker's lists of words."""
    listed = HERE.with_name("terms.txt").read_text(encoding="utf-8")
    words = {word.lower() for word in re.findall(r"[^\W\d_]+", re.sub("(?m)^#.*", "", listed))}
    for path in (HERE.parents[1] / "corpus").glob("*.md"):
        words |= lower_case(path.read_text(encoding="utf-8"))
    words |= {
        word for word in importlib.import_module("faker.providers.lorem.en_US").Provider.word_list if word.islower()
    }
    return frozenset(words)


def lower_case(text: str) -> set[str]:
    """Return the words that a text writes in lower case, which are no names there."""
    return {word for word in re.findall(r"(?<![\w@.-])[^\W\d_]+(?![\w@])", text) if word.islower()}


class Name(NamedTuple):
    """A person's name in a text."""

    begin: int
    end: int
    words: tuple[str, ...]  # without particles and initials
    evidence: int


class Piece(NamedTuple):
    """A word of a run, with the particles before it, or initials."""

    begin: int
    end: int
    word: str

    @property
    def initial(self) -> bool:
        """Whether it is initials."""
        return self.word.endswith(".") or len(self.word) == 1


class Reader:
    """Finds the persons of one text; `words` are those that the firm's documents write in lower case."""

    def __init__(self, text: str, words: Collection[str]):
        self.text, self.words = text, words
        self.expected = bytearray(len(text))  # for each character, evidence that a person is named there
        self.users: list[tuple[int, int]] = [match.span("user") for match in USER.finditer(text)]
        for heading, begin, end in columns(text):
            if USERS.fullmatch(heading):
                self.users += [match.span() for match in LOGIN.finditer(text, begin, end) if match[0] not in terms()]
            elif weight := 3 if STRONG.fullmatch(heading) else 2 * bool(WEAK.fullmatch(heading)):
                self._expect(begin, end, weight)
        self._expect_in_lines()

    def _expect(self, begin: int, end: int, weight: int) -> None:
        self.expected[begin:end] = bytes([max(weight, *self.expected[begin : begin + 1], 0)]) * (end - begin)

    def _expect_in_lines(self) -> None:
        """Expect persons behind labels, and in lines below a label that stands alone."""
        listing = False
        place = 0
        for line in self.text.split("\n"):
            for match in LABEL.finditer(line):
                rest, *_ = re.split(r"\||(?<=[^\W\d_]{3})\. ", line[match.end() :][:LONGEST_LIST], maxsplit=1)
                begin = place + match.end()
                self._expect(begin, begin + len(rest), 3 if match["strong"] else 2)
            alone = LABEL.fullmatch(line.strip()) or (line.strip() and STRONG.fullmatch(line.strip()))
            item = line.strip() and len(line) < LONGEST_ITEM and not re.match(r"\d+(?:\.\d+)* ", line)
            if listing and not alone and item:
                self._expect(place, place + len(line), 3)
            listing = bool(alone or (listing and item))
            place += len(line) + 1

    def names(self) -> list[tuple[int, int]]:
        """Return (begin, end) of the names, in order."""
        runs = [self._pieces(match) for match in RUN.finditer(self.text)]
        found = [name for run in runs for name in self._in_run(run)]
        edges = {each.begin for each in found}, {each.end for each in found}
        beside = [name for run in runs for name in self._in_run(run, *edges)]
        found = list({name.begin: name for name in [*found, *beside, *self._inverted(runs)]}.values())
        spans = {(name.begin, name.end) for name in found}
        spans |= {*self._elsewhere(runs, found), *self.users}
        kept: list[tuple[int, int]] = []
        for begin, end in sorted(spans, key=lambda span: (span[0], -span[1])):
            if not kept or begin >= kept[-1][1]:
                kept.append((begin, end))
        return kept

    def _pieces(self, match: re.Match[str]) -> list[Piece]:
        return [Piece(each.start(), each.end(), each[2]) for each in PIECE.finditer(self.text, *match.span())]

    def _ordinary(self, word: str) -> bool:
        return word.lower() not in WORDS["capital_particles"] and all(
            part in terms() or part in self.words for part in re.split(r"[-'\u2019]", word.lower()) if len(part) > 1
        )

    def _in_run(self, run: list[Piece], begins: Collection[int] = (), ends: Collection[int] = ()) -> Iterator[Name]:
        """Yield the name in a run that has the most evidence; `begins` and `ends` of other names are evidence too."""
        best: Name | None = None
        for first in range(len(run)):
            for last in range(min(len(run), first + 5), first, -1):
                name = self._judged(run, first, last, begins, ends)
                if name and (
                    best is None or (name.evidence, name.end - name.begin) > (best.evidence, best.end - best.begin)
                ):
                    best, before, after = name, run[:first], run[last:]
        if best and best.evidence >= ENOUGH:
            yield from self._in_run(before, begins, ends)
            yield best
            yield from self._in_run(after, begins, ends)

    def _judged(
        self, run: list[Piece], first: int, last: int, begins: Collection[int], ends: Collection[int]
    ) -> Name | None:
        """Return a part of a run as a name with its evidence, or None if it is none."""
        given_names, surnames = known_names()
        part = run[first:last]
        words = tuple(piece.word for piece in part if not piece.initial and piece.word not in SUFFIXES)
        begin, end = part[0].begin, part[-1].end
        following = self.text[end : end + 30]
        if (
            not words
            or (FIRM.match(following.lstrip(" ")) and following.startswith(" "))
            or re.match(r" ?and Sons?\b" if len(words) > 1 else r" ?(?:&|and Sons?\b|\+)", following)
        ):
            return None
        titled = [word.title() if word.isupper() else word for word in words]
        eastern = titled[0] in WORDS["eastern_surnames"] and (
            all(map(EASTERN.fullmatch, titled[1:])) or (len(words) == 3 and max(map(len, words)) <= 6)
        )
        if any(map(FIRM.fullmatch, words[1:] if eastern else words)) or any(
            FIRM.fullmatch(piece.word) for piece in run[last:]
        ):
            return None
        if (
            PLACE.match(f"{words[0]} ")
            or part[-1].initial
            or words[-1].lower() in WORDS["capital_particles"]
            or PLACE.search(self.text[max(0, begin - 30) : begin])
        ):
            return None
        title = [match for match in TITLE.finditer(self.text, max(0, begin - 30), begin) if match.end() == begin]
        weight = min(self.expected[begin], self.expected[end - 1])
        plain = [self._ordinary(word) for word in words]
        given = [word in given_names or word.split("-")[0] in given_names for word in titled]
        family = [word in surnames or word.split("-")[-1] in surnames for word in titled]
        term = all(word.lower() in terms() for word in words)
        if all(plain) and (term or not title) and not (given[0] and family[-1] and len(words) > 1 and weight):
            return None
        evidence = 3 * bool(title) + weight
        if len(part) == 1:
            known = (given[0] or family[0]) and not plain[0]
            begin = title[0].start() if title else begin
            return Name(begin, end, words, evidence + known if title or (weight and known) else 0)
        if title and any(plain[1:]) and not family[-1]:
            return None
        evidence += (1 if plain[0] else 2) * given[0] if len(words) > 1 else 0
        evidence += (1 if plain[-1] else 2) * family[-1] or (ENDS.fullmatch(titled[-1]) is not None and not plain[-1])
        evidence += 2 * (eastern and not all(plain[1:]))
        middle = 0 if eastern else sum(plain[1:-1])
        evidence += 1 if not any(plain) else -middle - (plain[-1] and not family[-1])
        if any(piece.initial for piece in part) and not plain[-1]:
            evidence += 2
        joined = re.search(
            r"(?:,|;| /| ?&| and| und| et| y| e| en| i| ve| och| or) $", self.text[max(0, begin - 5) : begin]
        )
        beside = joined and joined.start() + max(0, begin - 5) in ends
        after = re.match(r"(?:,|;| /| &| and| und| et| y| e| en| i| ve| or) ", following)
        beside = beside or (after is not None and end + after.end() in begins)
        begin = title[0].start() if title else begin
        return Name(begin, end, words, evidence + (2 if beside and not any(plain) else 0))

    def _inverted(self, runs: list[list[Piece]]) -> Iterator[Name]:
        """Yield names such as "Lovelace, Ada"."""
        given_names, _ = known_names()
        begins = {run[0].begin for run in runs}
        for match in INVERTED.finditer(self.text):
            surname, given = match[1].split()[-1], match[2]
            certain = given in given_names and not self._ordinary(given) and surname not in given_names
            if certain and match.start() in begins and not self._ordinary(surname):
                yield Name(match.start(), match.end(2), (given, surname), STRONG_ENOUGH)

    def _elsewhere(self, runs: list[list[Piece]], found: list[Name]) -> Iterator[tuple[int, int]]:
        """Yield single words that name a person of strong evidence; ordinary words only where one is expected."""
        given_names, _ = known_names()
        taken = {begin for name in found for begin in range(name.begin, name.end)}
        twice = Counter(name.words for name in found)
        sure = [name.words for name in found if name.evidence >= STRONG_ENOUGH or twice[name.words] > 1]
        alone = {word.lower() for words in sure for word in (words[0], words[-1])}
        alone |= {name.words[-1].lower() for name in found if name.words[0].title() in given_names}
        firsts = {"".join(word[0] for word in words).upper() for words in sure if len(words) > 1}
        initials = firsts | {each[0] + each[-1] for each in firsts}
        for piece, following in (
            (piece, after) for run in runs for piece, after in zip(run, [*run[1:], None], strict=True)
        ):
            if piece.begin in taken or piece.initial or FIRM.match(self.text[piece.end : piece.end + 20].lstrip()):
                continue
            expected = self.expected[piece.begin]
            if following and not expected and self._ordinary(following.word):
                continue
            if piece.word.lower() in alone and len(piece.word) >= FEWEST_TO_PROPAGATE:
                if expected or not self._ordinary(piece.word):
                    yield piece.begin, piece.end
            elif piece.word in initials:
                line = slice(self.text.rfind("\n", 0, piece.begin) + 1, piece.end)
                if any(self.expected[line]):
                    yield piece.begin, piece.end


def mask_places(text: str, masker: Masker) -> str:
    """Mask addresses, project numbers, clients and sites."""
    text = masker.matches(text, "address", ADDRESS, LABELS["address"])
    text = masker.matches(text, "address", ADDRESS, ADDRESSES, lambda match: "|" not in match[0])
    for kind, mask in SLOTS.items():
        named = {match["it"] for match in LABELS[kind].finditer(text) if _is_own(match["it"], kind)}
        if named:
            listed = "|".join(re.escape(each) for each in sorted(named, key=len, reverse=True))
            text = masker.matches(text, kind, mask, re.compile(rf"(?<![^\W_])(?:{listed})(?![^\W_])", re.I))
    return text


def _is_own(named: str, kind: str) -> bool:
    """Return whether a value is a name of its own, not a mask, a placeholder or a description by ordinary words."""
    if "<" in named:
        return False
    words = re.findall(r"[^\W\d_]{2,}", named)
    person = 1 < len(words) < 4 and words[0] in known_names()[0] and words[0].lower() not in terms()
    prose = len(re.findall(r"\b[a-z]{4,}", named)) > (1 if kind == "client" else 3)
    if kind != "project" and (prose or (person and not FIRM.search(named))):
        return False
    return kind == "project" or any(word.lower() not in terms() for word in words)
