"""Suggestions for continuing a text: passages of stored documents, and text that a model writes.

The suggestions are those that together save most keystrokes, if a key accepts each word: the sum over words of the
probability that the text continues so far, times the keys saved.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from models.plans.characters import Characters
from models.plans.continuation_tree import Branch, Branches
from models.plans.lstm_reader import Reader
from models.plans.stored_passages import Passage, Passages

SUGGESTED = 3  # suggestions shown at a time
GROWN = 48  # branches grown for a choice of suggestions
MOST_PASSAGES = 12
LEAST = math.log(1e-3)  # log-probability; what is less likely is not considered


@dataclass(frozen=True)
class Suggestion:
    """A continuation, with its place if it is from a stored document."""

    text: str  # open slots are <name> and <number>
    likelihood: float  # of a character, the geometric mean up to the first open slot
    document: str | None = None
    heading: str | None = None  # above it
    line: int | None = None  # from 1


@dataclass(frozen=True)
class Choice:
    """A chosen continuation."""

    branch: Branch  # the last word considered
    tokens: list[int]
    passage: Passage | None  # that begins with it


class Suggester:
    """Suggestions after a growing text."""

    def __init__(self, reader: Reader, passages: Passages | None, text: str, heading: str):
        self.branches, self.passages = Branches(reader), passages
        self.characters: Characters = reader.model.characters
        self.text, self.heading = text, heading
        self.own = passages.slots(text) if passages else {}

    def type(self, tokens: Sequence[int]) -> None:
        """Extend the text."""
        self.text += self.characters.signs(tokens)
        for token in tokens:
            self.branches.step(token)

    def choose(self, num: int) -> list[list[int]]:
        """Return up to `num` continuations as tokens."""
        return [choice.tokens for choice in self.choices(num)]

    def choices(self, num: int) -> list[Choice]:
        """Return up to `num` continuations: first the one that saves most keystrokes, then those that add most."""
        self.branches.grow(GROWN)
        found = self.passages.after(self.text, self.heading, MOST_PASSAGES, self.own) if self.passages else []
        ways = [self.characters.encode(passage.sure) for passage in found]
        self.branches.follow(ways, LEAST)
        saved, chosen = self.saved(), []
        for _ in range(num):
            totals = {self.branches.root: 0.0}
            for branch, keys in saved.items():  # each after its parent
                totals[branch] = totals[branch.parent] + keys
            best = max(totals, key=totals.__getitem__)
            if totals[best] <= 0:
                break
            way = self.branches.way(best)
            passage = next((number for number, other in enumerate(ways) if other[: len(way)] == way), None)
            chosen.append(Choice(best, way, None) if passage is None else Choice(best, ways[passage], found[passage]))
            while best is not self.branches.root:
                saved[best], best = 0.0, best.parent
        return chosen

    def suggest(self, num: int) -> list[Suggestion]:
        """Return up to `num` suggestions: sentences of documents, and words written by the model."""
        return [self._shown(choice) for choice in self.choices(num)]

    def saved(self) -> dict[Branch, float]:
        """Return, at the branch that ends a word, the keys that accepting it is expected to save; elsewhere 0."""
        saved, begins = {}, {self.branches.root: 0}
        for branch, depth in self.branches.walk():
            log_prob = branch.log_prob - self.branches.root.log_prob
            if log_prob < LEAST or branch.parent not in begins:
                continue
            begins[branch], saved[branch] = begins[branch.parent], 0.0
            if self.characters.by_id[branch.token].isspace():
                begins[branch], saved[branch] = depth, math.exp(log_prob) * (depth - begins[branch] - 1)
        return saved

    def _shown(self, choice: Choice) -> Suggestion:
        passage, (branch,) = choice.passage, self.branches.follow([choice.tokens])
        way = self.branches.way(branch)
        likelihood = math.exp((branch.log_prob - self.branches.root.log_prob) / len(way))
        text = self.characters.shown(passage.whole if passage else self.characters.signs(way)).rstrip("\n")
        if passage:
            return Suggestion(text, likelihood, passage.document, passage.heading, passage.line)
        return Suggestion(text, likelihood)
