"""Texts that a character model writes side by side, a token of each at a time.

Each has its own settings, and does not depend on those beside it, to the last bit: random numbers are functions of
(seed, number of the token), the network's products are free of rounding, all else is computed row by row.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import torch

from common.plain import Plain
from common.random import derive_key, first_uniform
from models import sampling
from models.plans.characters import COPIED, END, PAD, UNKNOWN, Characters
from models.plans.inputs import TextInput, TextSettings
from models.plans.readers import Reader

SAMPLED = "sampled by the model; no document says it"
MOST_READ = 200_000  # characters read of texts under way together; their counts take up to 0.5 kB each


class Text:
    """A text being written, or one that has ended; `spellings` are the tokens of characters outside the vocabulary."""

    def __init__(
        self,
        reader: Reader,
        given: TextInput,
        settings: TextSettings,
        stops: Sequence[str],
        spellings: Mapping[tuple[int, ...], str],
    ):
        self.reader, self.given, self.settings = reader, given, settings
        self.spellings, self.spelling = spellings, tuple[int, ...]()  # and the tokens of the one that was begun
        self.choice = settings.temperature, settings.top_k, settings.top_p
        self.certain = sampling.Certain(stops)
        self.number, self.left, self.ended = 0, settings.length, False
        self.written = self.text = ""
        self.num_taken = 0  # characters of `text`
        self.pieces: list[dict[str, Plain]] = []  # pieces and what was likely in their place, if asked for
        self.log_prob = 0.0  # of the tokens since the last piece

    def draw(self) -> float:
        """Return the random number of the next token."""
        key = derive_key(self.settings.seed + self.given.item, "sampling", self.number)
        return first_uniform(key, 0) if self.settings.temperature else 0.0

    def narrow(self, logits: torch.Tensor) -> None:
        """Rule out tokens (V,) that are no text: <unk> and digits after it spell only characters that were read."""
        logits[PAD] = -torch.inf
        if self.spelling:
            size = len(self.spelling)
            onward = [way[size] for way in self.spellings if way[:size] == self.spelling]
            kept = logits[onward]
            logits.fill_(-torch.inf)
            logits[onward] = kept
        elif not self.spellings:
            logits[UNKNOWN] = -torch.inf

    def spell(self, token: int) -> str:
        """Return the character whose spelling a token completes, or ""."""
        self.spelling += (token,)
        found = self.spellings.get(self.spelling, "")
        self.spelling = () if found else self.spelling
        return found

    def grow(self, piece: str) -> None:
        """Append the text of a token."""
        self.text += self.certain.grown(piece)
        self.number, self.left, self.written = self.number + 1, self.left - len(piece), (self.written + piece)[-COPIED:]
        if self.certain.ended or not self.left:
            self.end()

    def end(self) -> None:
        """Stop writing."""
        self.text, self.ended = self.text + ("" if self.certain.ended else self.certain.held), True
        del self.reader  # and what was counted of the text

    def taken(self) -> str:
        """Return the text that became certain since the last call."""
        begin, self.num_taken = self.num_taken, len(self.text)
        return self.text[begin:]

    def answer(self) -> dict[str, Plain]:
        """Return the answer of a text that has ended."""
        field: dict[str, Plain] = {} if self.given.field is None else {"field": self.given.field}
        if self.settings.logprobs is not None:
            ends = itertools.accumulate(len(str(each["token"])) for each in self.pieces)
            field["logprobs"] = [each for each, end in zip(self.pieces, ends, strict=True) if end <= len(self.text)]
        answer = sampling.answer(self.given.prompt, self.text, len(self.text), self.settings.length)
        return {**field, **answer, "text_is": SAMPLED}


class Writer:
    """Writer of a model's texts."""

    def __init__(self, characters: Characters, reader: Callable[[int], Reader], copied: Callable[[str, str], bool]):
        self.characters, self.reader, self.copied = characters, reader, copied

    def begun(self, given: TextInput, settings: TextSettings) -> Text:
        """Read a prompt and the document before it."""
        read = given.document + given.prompt
        tokens = np.array(self.characters.spelled(read))
        reader = self.reader(int(tokens[0]))
        reader.skim(tokens[1:])
        lower = self.characters.lower_case
        unknown = set(read.lower() if lower else read) - self.characters.ids.keys() if self.characters.spells else ()
        spellings = {tuple(self.characters.spelling(each)): each for each in unknown}
        return Text(reader, given, settings, [stop.lower() if lower else stop for stop in settings.stops], spellings)

    def characters_of(self, given: TextInput, settings: TextSettings) -> Iterator[str]:
        """Yield the characters of a text, each as soon as it is certain."""
        text = self.begun(given, settings)
        while not text.ended:
            self.advance([text])
            yield from text.taken()

    @torch.no_grad()
    def advance(self, texts: Sequence[Text]) -> None:
        """Write one more token of each text; none has ended yet."""
        readers = [text.reader for text in texts]
        logits = readers[0].expected(readers)
        for text, row_logits in zip(texts, logits, strict=True):
            text.narrow(row_logits)
        draws, waiting, going = [text.draw() for text in texts], list(range(len(texts))), []
        while waiting:
            again = []
            for row, token in self._chosen(texts, logits, draws, waiting):
                text = texts[row]
                spells = text.spelling or token == UNKNOWN
                piece = text.spell(token) if spells else self.characters.decode([token])
                if token == END or len(piece) > text.left:
                    text.end()
                elif self.copied(text.written, piece):
                    logits[row, token] = -torch.inf
                    again.append(row)
                else:
                    text.grow(piece)
                    self._tell(text, piece, logits[row], token)
                    going += [] if text.ended else [(readers[row], token)]
            waiting = again
        if going:
            readers[0].go_on(*zip(*going, strict=True))

    def _tell(self, text: Text, piece: str, log_probs: torch.Tensor, token: int) -> None:
        """Record a piece with its log-probability and the likeliest tokens in the place of its last one."""
        if text.settings.logprobs is None:
            return
        text.log_prob += float(log_probs[token])
        if piece:
            values, ids = (each.tolist() for each in log_probs.topk(text.settings.logprobs))
            likely = {self.characters.texts[number]: value for number, value in zip(ids, values, strict=True)}
            text.pieces.append({"token": piece, "logprob": text.log_prob, "likely": likely})
            text.log_prob = 0.0

    @staticmethod
    def _chosen(
        texts: Sequence[Text], logits: torch.Tensor, draws: Sequence[float], rows: Sequence[int]
    ) -> list[tuple[int, int]]:
        """Return some rows, each with its next token; rows with equal settings are drawn together."""
        alike: dict[tuple[float, int, float], list[int]] = {}
        for row in rows:
            alike.setdefault(texts[row].choice, []).append(row)
        found: list[tuple[int, int]] = []
        for (temperature, top_k, top_p), own in alike.items():
            tokens = sampling.drawn(logits[own], temperature, top_k, top_p, [draws[row] for row in own])
            found += zip(own, tokens.tolist(), strict=True)
        return found

    def answers(self, prepared: Sequence[TextInput], settings: TextSettings) -> list[dict[str, Plain]]:
        """Return what follows each prompt, writing as many side by side as the documents before them allow."""
        texts: list[Text] = []
        going: list[Text] = []
        while going or len(texts) < len(prepared):
            while len(texts) < len(prepared):
                given = prepared[len(texts)]
                read = sum(len(each.document) + len(each.prompt) for each in (given, *(text.given for text in going)))
                if going and read > MOST_READ:
                    break
                texts.append(self.begun(given, settings))
                going.append(texts[-1])
            self.advance(going)
            going = [text for text in going if not text.ended]
        return [text.answer() for text in texts]
