"""Where a text names persons again who are known from it: by one word, a short form, a login or initials."""

import re
import unicodedata
from collections.abc import Callable, Iterator
from typing import NamedTuple

from pipelines.workloads.bep.documents import name_patterns as patterns
from pipelines.workloads.bep.documents.lexicon import terms
from pipelines.workloads.bep.documents.masking import WORDS, columns

STRONG_ENOUGH = 4  # evidence that makes a name one everywhere in the document
FEWEST_LETTERS = 3  # of a name that is looked for alone


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


def known_again(
    text: str, runs: list[list[Piece]], found: list[Name], expected: bytearray, ordinary: Callable[[str], bool]
) -> Iterator[tuple[int, int]]:
    """Yield (begin, end) of what names a person of strong evidence; ordinary words only where one is `expected`."""
    taken = {begin for name in found for begin in range(name.begin, name.end)}
    sure = [name.words for name in found if name.evidence >= STRONG_ENOUGH]
    whole_names = " ".join(text[name.begin : name.end] for name in found if name.evidence >= STRONG_ENOUGH)
    lone = {word for words in sure for word in words if word.lower() not in WORDS["capital_particles"]}
    alone = {form for word in lone for form in (word.lower(), plain(word)) if len(form) == len(word)}
    alone |= {form for word in lone if len(word) > FEWEST_LETTERS for form in _inflected(word.lower())}
    firsts = (words[0].lower() for words in sure if "-" not in words[0])
    short_forms = {first[:at] for first in firsts for at in range(4, len(first) - 1)}
    beside = (each for run in runs for each in zip([None, *run], run, [*run[1:], None], strict=False))
    for before, (begin, end, word), following in beside:
        if end - 1 in taken or Piece(begin, end, word).initial or patterns.FIRM.match(text[end : end + 20].lstrip(" ")):
            continue
        if following and not expected[begin] and ordinary(following.word):
            continue
        bare = re.sub("^[dl]['\u2019]|['\u2019]s$", "", word.lower())  # "d'Ada", "Ada's"
        whole = len(bare) >= FEWEST_LETTERS and not alone.isdisjoint([bare, plain(bare), word.lower()])
        if whole or (bare in short_forms and not ordinary(word)):  # "Siva" of "Sivalingam"
            short = before is not None and before.initial
            shown = short or patterns.BY.search(text[max(0, begin - 20) : begin]) or patterns.DOES.match(text, end)
            if expected[begin] or shown or not ordinary(word):
                joined = short or (before is not None and before.word.lower() in WORDS["capital_particles"])
                # "says van Lovelace" of Ada Lovelace
                own = not re.match("(?:van|von|da|de) ", text[begin:end]) or text[begin:end] in whole_names
                yield before.begin if before and joined else begin if own else end - len(word), end
    ends = ((plain(each.words[0]), plain(each.words[-1])) for each in found if each.words[1:])
    orders = [order for first, last in ends for order in ((first, last), (last, first))]
    logins = {given[:at] + dot + last for given, last in orders for at, dot in ((1, ""), (1, "."), (99, "."))} - terms()
    yield from (match.span() for match in patterns.LOGIN.finditer(text) if match[0] in logins)
    yield from (span for span in _initials(text, found, expected) if span[0] not in taken)


def _initials(text: str, found: list[Name], expected: bytearray) -> Iterator[tuple[int, int]]:
    """Yield initials of persons of strong evidence, where one is expected or in cells that hold nothing else."""
    sure = [each for each in found if each.evidence >= STRONG_ENOUGH]
    bare = (patterns.TITLE.sub("", text[each.begin : each.end]) for each in sure)
    firsts = {letters(re.sub(r" (?:[JS]r\.?|I{2,3})$", "", name)) for name in bare}  # "MvdO"
    for words in (each.words for each in sure):
        firsts |= {letters(" ".join(words)), words[0][0] + words[-1][:2], "".join(word[0] for word in words)}  # "ALo"
    firsts |= {each[-1:] + each[:-1] for each in firsts}  # a surname before a given name
    firsts |= {"".join(unicodedata.normalize("NFKD", letter)[0] for letter in each) for each in firsts}  # "ROB"
    longer = {each for each in firsts if len(each) > 1}
    initials = {form for each in longer for form in (each, each.upper(), (each[0] + each[-1]).upper())}
    shown = {it for each in sure for it in _shown_beside(text, each)}
    # What is not in capitals may be a word, but for cells and lists.
    forms = (it if it.isupper() else rf"(?:(?<=[|:] )|(?<=/)|^(?= *{it} ?\|)){it}(?= ?(?:[|/,]|$))" for it in shown)
    if shown:
        pattern = re.compile(rf"(?<![\w@.\\-])(?:{'|'.join(forms)})(?![\w@])", re.MULTILINE)
        yield from (match.span() for match in pattern.finditer(text))
    named = [[*patterns.INITIALS.finditer(text, *it.span("them"))] for it in patterns.INITIALS_ALONE.finditer(text)]
    alone = [each for cell in named if all(each[0] in initials for each in cell) for each in cell]
    if len({each[0] for each in alone if each[0].lower() not in terms()}) > 1:
        yield from (each.span() for each in alone)
    codes = set(re.findall(r"(?<=\()[^\W\d_]{2,5}(?=\))|(?<=[-_])[^\W\d_]{2,5}(?=[-_])", text))  # "(PM)", "P7-KTM-XX"
    begun, cells = {each.begin for each in sure}, list(columns(text))
    people = {heading for heading, *cell in cells if not begun.isdisjoint(range(*cell))}
    listed = (range(*cell) for heading, *cell in cells if heading in people or patterns.CHECKERS.fullmatch(heading))
    places = {place for cell in listed for place in cell if expected[place] > 2}
    for each in (each for cell in named for each in cell if each.start() in places):
        if each[0].lower() not in terms() and not (each[0] in codes or re.fullmatch(WORDS["no_initials"], each[0])):
            yield each.span()
    for line in re.finditer(".+", text):
        row = initials.intersection(re.findall(r"\w+", line[0]))
        for begin, end in (each.span() for each in patterns.INITIALS.finditer(text, *line.span()) if each[0] in row):
            by = patterns.BY.search(text[max(0, begin - 20) : begin])  # "checked by AL"
            acts = by or patterns.ACTS.match(text, end) or patterns.DOES.match(text, end)
            asked = text[max(0, begin - 7) : begin].lower() == "action "
            known = asked or (end - begin > 2 and text[begin:end].lower() not in terms())
            if known or acts or len(row) > 2 or any(expected[line.start() : end]):
                yield begin, end


def _shown_beside(text: str, name: Name) -> Iterator[str]:
    """Yield what a legend, or the cell before or behind a name, shows to stand for it: "Tz | Anna Tölz"."""
    before = patterns.SHOWN_BEFORE.search(text[max(0, name.begin - 12) : name.begin])
    behind = patterns.SHOWN_BEHIND.match(text, name.end)
    named = f"{text[name.begin : name.end]} ".lower() * 2  # a surname may stand first
    for it in (match["it"] for match in (before, behind) if match):
        role = len(it) == 2 and it.isupper() and f"{it} =" not in text and f"({it})" not in text  # "PM | Paul Miller"
        own = not role and not (it.isupper() and it.lower() in terms())
        if own and re.search(rf"\b{'.*'.join(map(re.escape, it.lower()))}", named):
            yield it


def _inflected(name: str) -> Iterator[str]:
    """Yield the forms of a name in lower case that Slavic, Finnish and Hungarian sentences give it."""
    stems = {name, name.rstrip("aeioy\u011b"), re.sub(r"[e\u011b](?=[kcl\u0159\u0144]$)", "", name)}
    return (stem + ending for stem in stems for ending in WORDS["case_endings"])


def letters(name: str) -> str:
    """Return the first letter of each part of a name; of McAleese, it is "McA"."""
    return "".join(re.findall(r"\b(?:Mc(?=[A-Z]))?[^\W\d_]", name))


def plain(word: str) -> str:
    """Return a word as accounts spell it."""
    return "".join(each for each in unicodedata.normalize("NFKD", word.lower()) if each.isascii() and each.isalpha())
