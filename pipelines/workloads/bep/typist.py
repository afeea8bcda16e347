"""A simulated typist of pieces of held-out documents, who accepts suggestions by one key.

Three continuations are suggested at a time. One key types a character, or accepts a suggestion: its next word, all up
to the next punctuation mark, or the whole; the typist takes the longest that is right. The text before a piece in its
document has been read. Headings and the document's beginning are not typed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from common.plain import Plain
from common.statistics import ratio_percentiles, resampled_counts
from models.plans import chains
from models.plans.char_lstm import CharLSTM
from models.plans.char_mixture import CharMixture
from models.plans.characters import Characters
from models.plans.lstm_reader import Reader
from models.plans.mixture_reader import MixtureReader
from models.plans.stored_passages import letters
from models.plans.suggester import SUGGESTED, Suggester
from pipelines.workloads.bep.comparison import RESAMPLES
from pipelines.workloads.bep.data import Text
from pipelines.workloads.bep.fields import FIELDS

PIECE = 150  # characters that are typed in one place
OWN = "mixture and passages"


@dataclass(frozen=True)
class Piece:
    """Text typed at one place of a document."""

    document: int
    begin: int
    end: int
    heading: str


class KneserNeyReader(MixtureReader):
    """Reader with the predictions of the first chain alone, whose longer contexts interpolate shorter ones."""

    def __init__(self, reader: Reader):
        self.__dict__.update(reader.fork().__dict__)

    def mixed(self, network: Tensor, keys: np.ndarray, counts: Sequence[chains.Known]) -> Tensor:
        """Return log-probabilities (B, V) by the keys of contexts alone."""
        num_tokens = network.shape[1]
        found = chains.layers(keys[:, : len(chains.ORDERS)], np.zeros(len(keys), np.int64), num_tokens, counts, None)
        expected = np.full(network.shape, 1 / num_tokens, np.float32)
        for level in chains.CHAINS[0]:
            expected = found.own[:, level] + found.share[:, level, None] * expected
        return torch.from_numpy(np.log(expected))


class Lookup:
    """Suggestions from stored documents alone: for each next word, the longest agreement."""

    def __init__(self, model: CharMixture, text: str, heading: str):
        self.characters, self.passages = model.characters, model.passages
        self.text, self.heading, self.own = text, heading, model.passages.slots(text)

    def type(self, tokens: Sequence[int]) -> None:
        """Extend the text."""
        self.text += self.characters.signs(tokens)

    def choose(self, num: int) -> list[list[int]]:
        """Return up to `num` continuations."""
        found = self.passages.after(self.text, self.heading, 4 * num, self.own)
        by_word: dict[str, str] = {}
        for passage in found:
            by_word.setdefault(passage.sure.split(maxsplit=1)[0], passage.sure)
        return [self.characters.encode(text) for text in list(by_word.values())[:num]]


def systems(model: CharLSTM) -> dict[str, Callable[[Reader, str, str], Suggester | Lookup]]:
    """Return ways to suggest after a reader's text below a heading, by their names in the table, the model first."""
    if not isinstance(model, CharMixture):
        return {"LSTM": lambda reader, text, heading: Suggester(reader, None, text, heading)}
    return {
        OWN: lambda reader, text, heading: Suggester(reader, model.passages, text, heading),
        "mixture alone": lambda reader, text, heading: Suggester(reader, None, text, heading),
        "LSTM alone": lambda reader, text, heading: Suggester(lstm_alone(reader), None, text, heading),
        "Kneser-Ney, adapting": lambda reader, text, heading: Suggester(KneserNeyReader(reader), None, text, heading),
        "passages alone": lambda reader, text, heading: Lookup(model, text, heading),
    }


def lstm_alone(reader: Reader) -> Reader:
    """Return a reader with the predictions of the LSTM alone."""
    own = Reader.__new__(Reader)
    own.__dict__.update(reader.fork().__dict__)
    return own


def measure(
    model: CharLSTM, documents: Sequence[Text], most: int, seed: int
) -> tuple[dict[str, Plain], dict[str, Sequence[Plain]]]:
    """Type up to `most` characters of the documents; return the summary, and columns with the keys of each piece."""
    if not most:
        return {}, {}
    texts = [model.characters.signs(each.tokens.tolist()) for each in documents]
    chosen = pieces(texts, most)
    if not chosen:
        return {}, {}
    keys = typed(model, documents, texts, chosen)
    characters = np.array([each.end - each.begin for each in chosen])
    drawn = resampled_counts(len(chosen), RESAMPLES, seed)
    saved = {name: characters - own for name, own in keys.items()}
    table = [
        {
            "suggestions by": name,
            "keystrokes saved, %": 100 * float(own.sum() / characters.sum()),
            "95 %": _percent(own, characters, drawn),
        }
        for name, own in saved.items()
    ]
    columns = {
        "document": [documents[each.document].name for each in chosen],
        "field": [field_of(each.heading) for each in chosen],
        "characters": characters.tolist(),
        **{f"keystrokes, {name}": own.tolist() for name, own in keys.items()},
    }
    own = next(iter(saved.values()))
    summary = {
        "keystrokes_saved": float(own.sum() / characters.sum()),
        "keystrokes_saved_interval": ratio_percentiles(own, characters, drawn),
        "keystrokes_characters": int(characters.sum()),
        **_gain(saved, characters, drawn),
        "keystrokes_saved_by_field": _by_field(columns["field"], own, characters),
        "typing": table,
    }
    return summary, columns


def pieces(texts: Sequence[str], most: int) -> list[Piece]:
    """Return beginnings of lines of prose from all over the texts, about `most` characters in all."""
    found = []
    for number, text in enumerate(texts):
        heading, at = "", 0
        for line in text.split("\n"):
            if len(line) > chains.LONGEST_HEADING:
                found.append(Piece(number, at, min(at + PIECE, at + len(line)), heading))
            elif any(map(str.isalpha, line)) and not line.startswith(("|", "-")):
                heading = line
            at += len(line) + 1
    wanted = min(len(found), max(1, round(most / PIECE)))
    return [found[place] for place in np.linspace(0, len(found) - 1, wanted).astype(int)] if found else []


def typed(
    model: CharLSTM, documents: Sequence[Text], texts: Sequence[str], chosen: Sequence[Piece]
) -> dict[str, np.ndarray]:
    """Return the keystrokes (n,) that each piece takes with each kind of suggestions."""
    taking = systems(model)
    keys = {name: np.zeros(len(chosen), int) for name in taking}
    reader, document, at = model.reader(), 0, 0
    for number, piece in enumerate(chosen):
        if piece.document != document:
            reader, document, at = model.reader(), piece.document, 0
        tokens = documents[document].tokens.astype(np.int64)
        reader.skim(tokens[at : piece.begin])
        at = piece.begin
        for name, suggesting in taking.items():
            before = texts[document][: piece.begin]
            keys[name][number] = keystrokes(
                suggesting(reader.fork(), before, piece.heading), tokens[at : piece.end].tolist(), model.characters
            )
    return keys


def keystrokes(suggesting: Suggester | Lookup, tokens: Sequence[int], characters: Characters) -> int:
    """Return how many keys it takes to type `tokens` with suggestions."""
    at = keys = 0
    while at < len(tokens):
        left = tokens[at:]
        step = max([1, *(accepted(choice, left, characters.by_id) for choice in suggesting.choose(SUGGESTED))])
        suggesting.type(left[:step])
        at, keys = at + step, keys + 1
    return keys


def accepted(choice: Sequence[int], wanted: Sequence[int], signs: Sequence[str]) -> int:
    """Return how many tokens of a suggestion one key accepts: all, those up to punctuation, a word, or none."""
    agreeing = next((at for at, pair in enumerate(zip(choice, wanted, strict=False)) if pair[0] != pair[1]), None)
    agreeing = min(len(choice), len(wanted)) if agreeing is None else agreeing
    if agreeing == len(choice):
        return agreeing
    text = "".join(signs[token] for token in choice)
    words = [at + 1 for at, sign in enumerate(text) if sign.isspace()]
    clauses = [end for end in words if end > 1 and text[end - 2] in ",.;:!?|"]
    return max([end for end in (words[:1] + clauses[:1]) if end <= agreeing], default=0)


def field_of(heading: str) -> str:
    """Return the form's field whose name a heading has, or "other"."""
    return next((name for name in FIELDS if letters(name) == letters(heading)), "other")


def _by_field(fields: Sequence[str], saved: np.ndarray, characters: np.ndarray) -> dict[str, float]:
    own = np.array(fields)
    return {
        name: float(saved[own == name].sum() / characters[own == name].sum())
        for name in (*FIELDS, "other")
        if (own == name).any()
    }


def _gain(saved: Mapping[str, np.ndarray], characters: np.ndarray, drawn: np.ndarray | None) -> dict[str, Plain]:
    """Return the share of all keystrokes that the model saves beyond the best other kind of suggestions."""
    (_, own), *others = saved.items()
    if not others:
        return {}
    name, best = max(others, key=lambda each: each[1].sum())
    return {
        "keystrokes_strongest": name,
        "keystrokes_gain_percent": 100 * float((own - best).sum() / characters.sum()),
        "keystrokes_gain_percent_interval": _percent(own - best, characters, drawn),
    }


def _percent(values: np.ndarray, weights: np.ndarray, drawn: np.ndarray | None) -> list[float] | None:
    interval = ratio_percentiles(values, weights, drawn)
    return interval and [100 * end for end in interval]
