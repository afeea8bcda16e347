"""Quality of told stories: whether heroes keep their names, repetitions, and unknown words."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from common import text
from common.statistics import wilson

INTRODUCED = re.compile(r"\b(?:named|called|name was|name is|i'm|i am) (\w+)")
NAMED = re.compile(r"\b(?:named|called|name was) (\w+)")
SENTENCE_END = re.compile(r"(?<=[.!?])\s")
FEWEST = 5  # times that a name of the training text is introduced
NO_NAMES = {"the", "his", "her", "out", "for", "him", "them", "their", "and"}
HEARD = 150  # words of a story, its beginning included
GRAM = 4  # words


@dataclass(frozen=True)
class Heard:
    """Counts in a story's first words; None or 0 for names and sentences if its beginning names no hero."""

    from_nowhere: int | None  # names that nothing introduces
    hero_again: int  # sentences after the beginning that name the hero, and of these
    hero_twice: int  # those that do it more than once, as where everybody bears the name
    words: int
    unknown: int
    repeated: int  # sequences of GRAM words that came before


class Listener:
    """Knows the names and words of a training text."""

    def __init__(self, training: str):
        lowered = training.lower()
        counts = Counter(NAMED.findall(lowered))
        self.names = {name for name, count in counts.items() if count >= FEWEST and len(name) > 2} - NO_NAMES
        self.words = set(text.words(lowered))

    def heard(self, story: str) -> Heard:
        """Judge a story's first words."""
        sentences = SENTENCE_END.split(" ".join(story.lower().split()[:HEARD]))
        known, nowhere, again, twice = set(self._named(" ".join(sentences[:2]))), 0, 0, 0
        hero = next(iter(self._named(" ".join(sentences[:2]))), "")
        for sentence in sentences[2:]:
            here = Counter(self._named(sentence))
            nowhere += len(here.keys() - known - set(INTRODUCED.findall(sentence)))
            known |= here.keys()
            again, twice = again + (here[hero] > 0), twice + (here[hero] > 1)
        words = text.words(" ".join(sentences))
        grams = [tuple(words[i : i + GRAM]) for i in range(len(words) - GRAM + 1)]
        unknown = sum(word not in self.words for word in words)
        return Heard(nowhere if hero else None, again, twice, len(words), unknown, len(grams) - len(set(grams)))

    def beginning(self, story: str) -> str | None:
        """Return the first sentence of a story, or the first two, so that they name a hero; None if they do not."""
        sentences = SENTENCE_END.split(story)
        begins = (" ".join(sentences[:count]) for count in (1, 2))
        return next((begin for begin in begins if self._named(begin.lower())), None)

    def _named(self, part: str) -> list[str]:
        return [word for word in re.findall(r"\w+", part) if word in self.names]


def row(label: str, stories: Sequence[Heard], ended: Sequence[bool]) -> dict[str, object]:
    """Return a table row: shares of the stories with a hero, of all words, and of all stories."""
    heroes = [story for story in stories if story.from_nowhere is not None]
    kept, again = sum(story.from_nowhere == 0 for story in heroes), sum(story.hero_again > 0 for story in heroes)
    twice, words = sum(story.hero_twice for story in heroes), max(1, sum(story.words for story in stories))
    return {
        "stories": label,
        "with a hero": len(heroes),
        "no name from nowhere": kept / len(heroes) if heroes else None,
        "no name from nowhere, 95 %": wilson(kept, len(heroes)),
        "hero named again": again / len(heroes) if heroes else None,
        "hero named again, 95 %": wilson(again, len(heroes)),
        "hero twice in a sentence": twice / max(1, sum(story.hero_again for story in heroes)),
        "unknown words": sum(story.unknown for story in stories) / words,
        "repeated 4-grams": sum(story.repeated for story in stories) / words,
        "ended": float(np.mean(ended)) if len(ended) else None,
    }
