"""A simulated typist of pieces of held-out documents, who accepts suggestions by one key.

Three clauses and the model's next words are shown. One key types a character, or accepts the next word of one, all up
to punctuation, or the whole: the longest that is right. The document before a piece has been read.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch

from common.plain import Plain
from common.statistics import ratio_percentiles, resampled_counts
from common.workers import progress
from models.plans import chains
from models.plans.char_lstm import CharLSTM
from models.plans.char_mixture import CharMixture
from models.plans.characters import END, PAD, Characters
from models.plans.library import SLOT
from models.plans.readers import Reader
from models.plans.suggester import continuation, last_sentence
from pipelines.workloads.bep.comparison import RESAMPLES, rows_of
from pipelines.workloads.bep.data import Text

PIECE = 150  # characters that are typed in one place
OWN = "clauses and next words"
WORD, WRITTEN = 12, 30  # characters: fewest and most that are written ahead


class Piece(NamedTuple):
    """Text typed at one place of a document."""

    document: int
    begin: int
    end: int
    heading: str


class NextWords:
    """The likeliest next words by a model, which a page shows as the model's writing, not as suggestions."""

    def __init__(self, reader: Reader):
        self.reader, self.ahead = reader, list[int]()

    def type(self, tokens: Sequence[int]) -> None:
        """Extend the text."""
        self.ahead = self.ahead[len(tokens) :] if self.ahead[: len(tokens)] == list(tokens) else []
        for token in tokens:
            self.reader.go_on([self.reader], [token])

    def choose(self) -> list[list[int]]:
        """Return one continuation."""
        own = self.reader.fork()
        if len(self.ahead) < WORD:
            for token in self.ahead:
                own.go_on([own], [token])
            while len(self.ahead) < WRITTEN:
                log_probs = own.ahead()
                log_probs[PAD : END + 1] = -torch.inf
                self.ahead.append(int(log_probs.argmax()))
                own.go_on([own], self.ahead[-1:])
        return [list(self.ahead)]


class Clauses:
    """Clauses of stored documents that continue the sentence begun."""

    def __init__(self, model: CharMixture, text: str, heading: str):
        self.model, self.heading, self.text = model, heading, text[text.rfind("\n") + 1 :]

    def type(self, tokens: Sequence[int]) -> None:
        """Extend the text."""
        self.text += self.model.characters.signs(tokens)

    def choose(self) -> list[list[int]]:
        """Return up to three continuations."""
        begun = last_sentence(self.text)[1]
        found = [continuation(each, begun) for each in self.model.suggester.find(self.heading, self.text)]
        return [self.model.characters.encode(SLOT.split(text)[0]) for text, replaces in found if not replaces]


Kinds = Sequence[NextWords | Clauses]  # of suggestions, shown beside one another


def systems(model: CharLSTM) -> dict[str, Callable[[Reader, str, str], Kinds]]:
    """Return the suggestions beside a reader's text below a heading, by their names in the table, the model's first."""
    if not isinstance(model, CharMixture):
        return {"next words by the LSTM": lambda reader, text, heading: [NextWords(reader)]}
    return {
        OWN: lambda reader, text, heading: [Clauses(model, text, heading), NextWords(reader)],
        "next words by the mixture": lambda reader, text, heading: [NextWords(reader)],
        "clauses": lambda reader, text, heading: [Clauses(model, text, heading)],
    }


def measure(model: CharLSTM, documents: Sequence[Text], most: int, seed: int) -> dict[str, Plain]:
    """Type up to `most` characters of the documents; return figures for a summary."""
    texts = [model.characters.signs(each.tokens.tolist()) for each in documents]
    if not (chosen := pieces(texts, most)):
        return {}
    keys = typed(model, documents, texts, chosen)
    characters = np.array([each.end - each.begin for each in chosen])
    drawn = resampled_counts(len(chosen), RESAMPLES, seed)
    saved = {name: characters - own for name, own in keys.items()}
    percent = {name: 100 * own for name, own in saved.items()}
    own = next(iter(saved.values()))
    return {
        "keystrokes_saved": float(own.sum() / characters.sum()),
        "keystrokes_saved_interval": ratio_percentiles(own, characters, drawn),
        "keystrokes_characters": int(characters.sum()),
        **_gain(saved, characters, drawn),
        "typing": rows_of(percent, characters, drawn, ("suggestions by", "keystrokes saved, %")),
    }


def pieces(texts: Sequence[str], most: int) -> list[Piece]:
    """Return beginnings of lines of prose from all over the texts, about `most` characters in all; none for 0."""
    found: list[Piece] = []
    for number, text in enumerate(texts):
        heading, at = "", 0
        for line in text.split("\n"):
            if len(line) > chains.LONGEST_HEADING:
                found.append(Piece(number, at, min(at + PIECE, at + len(line)), heading))
            elif any(map(str.isalpha, line)) and not line.startswith(("|", "-")):
                heading = line
            at += len(line) + 1
    wanted = min(len(found), max(1, round(most / PIECE))) if most else 0
    return [found[place] for place in np.linspace(0, len(found) - 1, wanted).astype(int)]


def typed(
    model: CharLSTM, documents: Sequence[Text], texts: Sequence[str], chosen: Sequence[Piece]
) -> dict[str, np.ndarray]:
    """Return the keystrokes (n,) for each piece with each kind of suggestions, by its name."""
    taking = systems(model)
    keys = {name: np.zeros(len(chosen), int) for name in taking}
    reader, document, at = model.reader(), 0, 0
    for number, piece in progress(enumerate(chosen), len(chosen), "typing held-out text with suggestions, places"):
        if piece.document != document:
            reader, document, at = model.reader(), piece.document, 0
        tokens = documents[document].tokens.astype(np.int64)
        reader.skim(tokens[at : piece.begin])
        at = piece.begin
        for name, suggesting in taking.items():
            kinds = suggesting(reader.fork(), texts[document][:at], piece.heading)
            keys[name][number] = keystrokes(kinds, tokens[at : piece.end].tolist(), model.characters)
    return keys


def keystrokes(kinds: Kinds, tokens: Sequence[int], characters: Characters) -> int:
    """Return the number of keys to type `tokens` with suggestions."""
    at = keys = 0
    while at < len(tokens):
        left = tokens[at:]
        choices = [way for kind in kinds for way in kind.choose()]
        step = max([1, *(accepted(choice, left, characters.by_id) for choice in choices)])
        for kind in kinds:
            kind.type(left[:step])
        at, keys = at + step, keys + 1
    return keys


def accepted(choice: Sequence[int], wanted: Sequence[int], signs: Sequence[str]) -> int:
    """Return how many tokens of a suggestion one key accepts: all, those up to punctuation, a word, or none."""
    pairs = enumerate(zip(choice, wanted, strict=False))
    agreeing = next((at for at, (own, other) in pairs if own != other), min(len(choice), len(wanted)))
    if agreeing == len(choice):
        return agreeing
    words = [at + 1 for at, token in enumerate(choice) if signs[token].isspace()]
    clauses = [end for end in words if end > 1 and signs[choice[end - 2]] in ",.;:!?|"]
    return max([end for end in (words[:1] + clauses[:1]) if end <= agreeing], default=0)


def _gain(saved: Mapping[str, np.ndarray], characters: np.ndarray, drawn: np.ndarray | None) -> dict[str, Plain]:
    """Return the share of all keystrokes that the model saves beyond the best other kind of suggestions."""
    (_, own), *others = saved.items()
    if not others:
        return {}
    name, best = max(others, key=lambda each: each[1].sum())
    return {
        "keystrokes_strongest": name,
        "keystrokes_gain_percent": 100 * float((own - best).sum() / characters.sum()),
        "keystrokes_gain_percent_interval": ratio_percentiles(100 * (own - best), characters, drawn),
    }
