"""Passages of stored documents that continue a text, with slots for the names and numbers of other projects.

Texts are compared by words: a name or number that occurs in one document alone is a slot, which matches any other name
or number. A slot is filled by what follows the same two words in the document at hand, or left as <name> or <number>.
"""

import bisect
import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from models.plans import chains

TOKEN = re.compile(r"\n+|[^\W_]+(?:[-'\u2019.,/][^\W_]+)*|\S")
WORDS = re.compile(r"[A-Z]?[^\W\d_A-Z]+|[^\W\d_]+")  # those of clashDetection and of BIM, too
SENTENCE_END = re.compile(r"[.!?]\s|\n")
LONGEST = 240  # characters of a passage that is suggested
MOST_WORDS = 8  # that are compared
REACH = 400  # characters of a text that are compared
NAME, NUMBER, UNKNOWN = range(3)  # ids of words
SLOTS = ("<name>", "<number>")
MINOR = {"and", "the", "of", "for", "a"}  # words missing in names of fields


Slots = dict[tuple[int, int], str]  # ids of the two words before a slot -> its filling


class Word(NamedTuple):
    """A word, a punctuation mark, line ends, or a slot of several words."""

    begin: int
    end: int
    id: int


@dataclass(frozen=True)
class Passage:
    """A continuation from a stored document."""

    sure: str  # up to the first open slot
    whole: str
    document: str
    heading: str  # above it
    line: int  # from 1


class Passages:
    """Passages of stored documents, given by their names."""

    def __init__(self, texts: Mapping[str, str]):
        self.names = list(texts)
        self.text = "\n".join(texts.values())
        self.begins = list(itertools.accumulate((len(text) + 1 for text in texts.values()), initial=0))[:-1]
        found = {name: Counter(_lowered(text)) for name, text in texts.items()}
        owners = Counter(word for words in found.values() for word in words)
        pairs = Counter(pair for text in texts.values() for pair in set(itertools.pairwise(_lowered(text))))
        lower = set().union(*(TOKEN.findall(text) for text in texts.values()))
        # Words of any project: written in lower case somewhere, or in two documents.
        self.common = {word for word, count in owners.items() if count > 1 or word in lower}
        self.common_pairs = {pair for pair, count in pairs.items() if count > 1 and any(map(str.isdigit, pair[1]))}
        self.ids: dict[str, int] = {}
        self.words = list(self._words(self.text, grow=True))
        self.word_ids = np.array([word.id for word in self.words] or [UNKNOWN])
        self.ends = [word.end for word in self.words]
        lines = re.finditer(r"^.+", self.text, re.MULTILINE)
        self.headings = [(found.start(), found[0]) for found in lines if _is_heading(found[0])]
        self.heading_begins = [at for at, _ in self.headings]
        self.written = [letters(line) for _, line in self.headings]
        places = np.searchsorted(self.heading_begins, [word.begin for word in self.words], "right") - 1
        self.below = np.array([self.written[place] if place >= 0 else "" for place in places], object)

    def heading(self, field: str) -> str:
        """Return the heading, as a document spells it, for a form's field such as clashDetection.

        Without a heading of these words, it is the field's own name.
        """
        wanted = letters(field)
        fitting = [line for (_, line), written in zip(self.headings, self.written, strict=True) if written == wanted]
        return Counter(fitting).most_common(1)[0][0] if fitting else field

    def slots(self, text: str) -> Slots:
        """Return the names and numbers of a document at hand by the two words before them."""
        words = list(self._words(text))
        triples = zip(words, words[1:], words[2:], strict=False)
        return {
            (first.id, second.id): text[slot.begin : slot.end]
            for first, second, slot in triples
            if slot.id in (NAME, NUMBER)
        }

    def after(self, text: str, heading: str, most: int, own: Slots) -> list[Passage]:
        """Return up to `most` passages that may continue `text` below `heading`, the longest agreement first.

        Slots are filled from `own`, those of the document at hand.
        """
        text = text[-REACH:]
        words = list(self._words(text))
        begun = ""
        if words and words[-1].end == len(text) and text[-1].isalnum():
            begun = text[words.pop().begin :]
        gap = text[words[-1].end if words else 0 : len(text) - len(begun)]
        found, seen = [], set()
        for place in self._places(words, letters(heading)):
            passage = self._passage(place, begun, gap, own)
            if passage and passage.sure.strip() and passage.sure not in seen:
                seen.add(passage.sure)
                found.append(passage)
                if len(found) == most:
                    break
        return found

    def _words(self, text: str, grow: bool = False) -> Iterator[Word]:
        """Split a text into words and slots; those of the stored text get ids."""
        before, slot = "", None
        for match in TOKEN.finditer(text):
            written = match.group()
            word = written.lower()
            kind = self._kind(before, word, written)
            if slot is not None and kind != NAME:
                yield slot
                slot = None
            if kind == NAME:
                slot = Word(slot.begin if slot else match.start(), match.end(), NAME)
            elif kind == NUMBER:
                yield Word(match.start(), match.end(), NUMBER)
            else:
                key = word if word.strip() else "\n"
                if grow:
                    self.ids.setdefault(key, len(self.ids) + UNKNOWN + 1)
                yield Word(match.start(), match.end(), self.ids.get(key, UNKNOWN))
            before = word
        if slot is not None:
            yield slot

    def _kind(self, before: str, word: str, written: str) -> int | None:
        if any(map(str.isdigit, word)):
            return None if (before, word) in self.common_pairs else NUMBER
        return NAME if written[0].isupper() and word not in self.common else None

    def _places(self, words: list[Word], section: str) -> Iterator[int]:
        """Yield the index of the word after agreeing ones, the most of these first; those below `section` first."""
        levels = [np.arange(1, len(self.words))]
        for number, word in enumerate(reversed(words[-MOST_WORDS:]), 1):
            before = levels[-1][levels[-1] >= number]
            levels.append(before[self.word_ids[before - number] == word.id] if word.id != UNKNOWN else before[:0])
        for agreeing in range(len(levels) - 1, 0, -1):
            fresh = np.setdiff1d(
                levels[agreeing], levels[agreeing + 1] if agreeing + 1 < len(levels) else levels[0][:0]
            )
            same = self.below[fresh] == section if section else np.zeros(len(fresh), bool)
            yield from map(int, (*fresh[same], *fresh[~same]))

    def _passage(self, place: int, begun: str, gap: str, own: Slots) -> Passage | None:
        """Return the text at a word, if it begins with `begun` after a `gap`, up to the end of the sentence."""
        word, previous = self.words[place], self.words[place - 1]
        between = self.text[previous.end : word.begin]
        if begun and (between != gap or word.id in (NAME, NUMBER) or not self.text.startswith(begun, word.begin)):
            return None
        if not begun and not between.startswith(gap):
            return None
        start = word.begin + len(begun) if begun else previous.end + len(gap)
        end = SENTENCE_END.search(self.text, max(start, word.begin))
        stop = min(end.end() if end else len(self.text), start + LONGEST)
        pieces, at, sure = [], start, None
        for number in range(place, bisect.bisect_right(self.ends, stop)):
            slot = self.words[number]
            if slot.id in (NAME, NUMBER) and slot.begin >= start:
                pieces.append(self.text[at : slot.begin])
                key = self.words[number - 2].id, self.words[number - 1].id
                if key in own:
                    pieces.append(own[key])
                else:
                    sure = "".join(pieces) if sure is None else sure
                    pieces.append(SLOTS[slot.id])
                at = slot.end
        whole = "".join([*pieces, self.text[at:stop]])
        document = bisect.bisect_right(self.begins, start) - 1
        heading = bisect.bisect_right(self.heading_begins, start) - 1
        line = self.text.count("\n", self.begins[document], start) + 1
        below = (
            self.headings[heading][1] if heading >= 0 and self.heading_begins[heading] >= self.begins[document] else ""
        )
        return Passage(whole if sure is None else sure, whole, self.names[document], below, line)


def _lowered(text: str) -> list[str]:
    return TOKEN.findall(text.lower())


def _is_heading(line: str) -> bool:
    """Return whether a line is a heading, as in chains.py: short, and neither a sentence nor a table row."""
    short = 0 < len(line) <= chains.LONGEST_HEADING and not line.endswith((".", ",", ";", ":", "|"))
    return short and any(map(str.isalpha, line)) and not line.startswith("- ")


def letters(line: str) -> str:
    """Return the significant letters of a heading or a field's name, whatever its spelling."""
    return "".join(word for word in WORDS.findall(line) if word.lower() not in MINOR).lower()
