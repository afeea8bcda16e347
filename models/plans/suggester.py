"""Suggestions: how a text may go on, as passages of stored documents and as text that a model writes.

Of all continuations, those are suggested that save most keystrokes together, if each of their words can be accepted by
a key: the sum over the words of the probability that the text goes on so far, times the keys that are saved.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from models.plans.characters import Characters
from models.plans.continuation_tree import Branch, Branches
from models.plans.lstm_reader import Reader
from models.plans.stored_passages import Passage, Passages

GROWN = 48  # branches that grow for a choice of suggestions
MOST_PASSAGES = 12
LEAST = math.log(1e-3)  # log-probability of what is thought of


@dataclass(frozen=True)
class Suggestion:
    """A continuation, with where it stands in a stored document if it does."""

    text: str  # names and numbers of other projects that nothing is known for are <name> and <number>
    likelihood: float  # of a character, the geometric mean up to the first of these
    document: str | None = None
    heading: str | None = None  # that it stands below there
    line: int | None = None  # from 1


@dataclass(frozen=True)
class Choice:
    """A continuation that was chosen."""

    branch: Branch  # its last word that was thought of
    tokens: list[int]
    passage: Passage | None  # whose beginning it is


class Suggester:
    """Suggestions after a text, which is typed on."""

    def __init__(self, reader: Reader, passages: Passages | None, text: str, heading: str):
        self.branches, self.passages = Branches(reader), passages
        self.characters: Characters = reader.model.characters
        self.text, self.heading = text, heading
        self.own = passages.slots(text) if passages else {}

    def type(self, tokens: Sequence[int]) -> None:
        """Go on with a text."""
        self.text += self.characters.signs(tokens)
        for token in tokens:
            self.branches.step(token)

    def choices(self, num: int, grown: int = GROWN) -> list[Choice]:
        """Return up to `num` continuations, the one that saves most keystrokes first, then what adds most to it."""
        self.branches.grow(grown)
        found = self.passages.after(self.text, self.heading, MOST_PASSAGES, self.own) if self.passages else []
        ways = [self.characters.encode(passage.sure) for passage in found]
        self.branches.follow(ways, LEAST)
        saved, chosen = self._saved(), []
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
        """Return up to `num` suggestions: sentences of documents, and words that the model writes."""
        return [self._shown(choice) for choice in self.choices(num)]

    def _saved(self) -> dict[Branch, float]:
        """Return the keys that accepting a word is expected to save, at the branch that ends it; at others none."""
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
