"""Continuations of a text as a tree of tokens with their probabilities, grown where these are largest.

Predictions after a path through the tree are computed once, for several paths at a time.
"""

import heapq
import math
from collections.abc import Iterator, Sequence

import numpy as np

from models.plans.characters import END, PAD, UNKNOWN
from models.plans.lstm_reader import Reader, Standing

AT_ONCE = 8  # branches that grow together
MOST_CHILDREN = 6
LEAST = math.log(2e-3)  # log-probability of branches that grow


class Branch:
    """A token after those on the path to it."""

    __slots__ = ("children", "expected", "likely", "log_prob", "parent", "place", "token")

    place: tuple[Standing, int]  # known with `expected`

    def __init__(self, parent: "Branch | None", token: int, log_prob: float):
        self.parent = self if parent is None else parent  # the root is its own
        self.token, self.log_prob = token, log_prob  # of the whole way from the first root
        self.children: dict[int, Branch] = {}
        self.expected: np.ndarray | None = None  # log-probabilities (V,) of the next token
        self.likely: list[int] = []  # the likeliest of them

    def child(self, token: int) -> "Branch":
        """Return the branch for one more token; this one must have been expanded."""
        if token not in self.children:
            assert self.expected is not None, "only branches that have grown have children"
            self.children[token] = Branch(self, token, self.log_prob + float(self.expected[token]))
        return self.children[token]


class Branches:
    """The tree of what may follow a reader's text; the reader stays as it is."""

    def __init__(self, reader: Reader):
        self.reader, self.model = reader, reader.model
        self.last = {number for number, text in enumerate(self.model.characters.texts) if text == "\n"} | {END}
        self.root = Branch(None, END, 0.0)
        self._learn(self.root, reader.ahead().numpy(), (reader.standing(), 0))

    def step(self, token: int) -> None:
        """Make a token the new root, and forget its alternatives."""
        self.root = self.root.child(token)
        self.expand([self.root])
        self.root.parent = self.root

    def expand(self, branches: Sequence[Branch]) -> None:
        """Predict what follows some branches, whose parents have been expanded."""
        waiting = [branch for branch in branches if branch.expected is None]
        if waiting:
            standing = Standing.joined([branch.parent.place for branch in waiting])
            log_probs, after = self.reader.extend(standing, np.array([branch.token for branch in waiting]))
            for row, (branch, expected) in enumerate(zip(waiting, log_probs.numpy(), strict=True)):
                self._learn(branch, expected, (after, row))

    def follow(self, ways: Sequence[Sequence[int]], least: float = -math.inf) -> list[Branch]:
        """Return where each path leads, or the branch before it becomes less likely than `least`."""
        reached = [self.root] * len(ways)
        going = [number for number, way in enumerate(ways) if way]
        depth = 0
        while going:
            self.expand([reached[number] for number in going])
            further = []
            for number in going:
                branch = reached[number].child(ways[number][depth])
                if branch.log_prob - self.root.log_prob >= least:
                    reached[number] = branch
                    if depth + 1 < len(ways[number]):
                        further.append(number)
            going, depth = further, depth + 1
        return reached

    def grow(self, num: int) -> None:
        """Expand the `num` most likely branches, or all with a probability of at least 0.002."""
        number, heap = 1, [(0.0, 0, self.root)]
        while heap and num > 0:
            chosen = [heapq.heappop(heap)[2] for _ in range(min(AT_ONCE, num, len(heap)))]
            num -= len(chosen)
            self.expand(chosen)
            for branch in chosen:
                for token in branch.likely:
                    child = branch.child(token)
                    cost = self.root.log_prob - child.log_prob
                    if token not in self.last and cost <= -LEAST:
                        heapq.heappush(heap, (cost, number, child))
                        number += 1

    def walk(self) -> Iterator[tuple[Branch, int]]:
        """Yield all branches below the root with their depth, each after its parent."""
        waiting = [(child, 1) for child in self.root.children.values()]
        while waiting:
            branch, depth = waiting.pop()
            yield branch, depth
            waiting += [(child, depth + 1) for child in branch.children.values()]

    def way(self, branch: Branch) -> list[int]:
        """Return the tokens from the root to a branch."""
        tokens = []
        while branch is not self.root:
            tokens.append(branch.token)
            branch = branch.parent
        return tokens[::-1]

    def _learn(self, branch: Branch, expected: np.ndarray, place: tuple[Standing, int]) -> None:
        branch.expected, branch.place = expected, place
        likely = np.argsort(-expected, kind="stable")[: MOST_CHILDREN + 3].tolist()
        branch.likely = [token for token in likely if token not in (PAD, UNKNOWN)][:MOST_CHILDREN]
