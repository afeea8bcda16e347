"""A model that tells stories: a transformer small enough for a microcontroller, with its tokenizer.

It tells them by its trained weights, or in integers as a chip does (`integer_transformer.py`).
"""

import itertools
import json
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from common.errors import as_user_error
from common.plain import Plain
from models import sampling
from models.model import asked
from models.stories.inputs import StoryInput, StorySettings
from models.stories.integer_transformer import Sampler
from models.stories.network import Network, Past
from models.stories.quantization import quantize, unpacked
from models.stories.tokens import END, UNKNOWN

if TYPE_CHECKING:
    from tokenizers import Tokenizer


class TinyTransformer(Network):
    """A tiny transformer that tells stories: byte-pair tokens in, logits of the next token out."""

    family = "tiny_transformer"
    pipeline_tag = "text-generation"
    input_type, settings_type = StoryInput, StorySettings

    def renewed(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Unpack the tensors of a model that ships."""
        return unpacked(tensors)

    @cached_property
    def tokenizer(self) -> "Tokenizer":
        """The config's tokenizer; it reads the name of a special token as plain text."""
        return make_tokenizer(self.config.tokenizer)

    @cached_property
    def lower_case(self) -> bool:
        """Whether the training text had no capital letters, so that prompts are read in lower case."""
        tokens = [self.tokenizer.decode([token]) for token in range(self.config.vocabulary)]
        return all(token == token.lower() for token in tokens)

    @cached_property
    def beginning(self) -> str:
        """The first four words of the likeliest story, a page's first prompt; up to a character that is cut off."""
        (story,) = self.predict([{"prompt": ""}], length=16, temperature=0)
        text = " ".join(str(story["text"]).partition("\ufffd")[0].split()[:4]).rstrip(".,!?")
        return text.capitalize() if self.lower_case else text

    def encoded(self, prompt: str) -> list[int]:
        """Return the tokens of a prompt."""
        return list(self.tokenizer.encode(prompt.lower() if self.lower_case else prompt).ids)

    def _stops(self, settings: StorySettings) -> list[str]:
        return [stop.lower() if self.lower_case else stop for stop in settings.stops]

    def answers(self, prepared: Sequence[StoryInput], settings: StorySettings) -> list[dict[str, Plain]]:
        """Return a `sampling.answer` to each prompt, with a `note` where parts of a prompt are unknown tokens."""
        known = [self.encoded(given.prompt) for given in prepared]
        continued: list[list[int]] = [[] for _ in known]
        for tokens in self._steps_by(known, [given.item for given in prepared], settings):
            for story, token in zip(continued, tokens, strict=True):
                if token != END:
                    story.append(token)
        found = []
        for given, tokens, more in zip(prepared, known, continued, strict=True):
            whole = self.tokenizer.decode(more)
            text = "".join(sampling.until([whole], self._stops(settings)))
            answer = sampling.answer(given.prompt, text, len(more) if text == whole else 0, settings.length)
            if unread := tokens.count(UNKNOWN):
                answer["note"] = f"{unread} bytes of the prompt did not occur in the stories this model learnt from"
            found.append(answer)
        return found

    def stream(self, given: Mapping[str, Plain] | StoryInput, **settings: Plain) -> Iterator[str]:
        """Iterate over the pieces of the answer's `text`, each as soon as it is certain.

        Raises ValueError for an input or settings that cannot be used, when called.
        """
        story, chosen = asked(StoryInput, StorySettings, given, settings)
        return self._text_of(self._steps_by([self.encoded(story.prompt)], [story.item], chosen), chosen)

    def _text_of(self, steps: Iterator[Sequence[int]], settings: StorySettings) -> Generator[str, None, str]:
        """Yield the text of one story's tokens; return the `finish` of its answer."""
        tokens, copies = itertools.tee(step[0] for step in steps)
        stopped = yield from sampling.until(_pieces(self.tokenizer, tokens), self._stops(settings))
        return "stop" if stopped or sum(token != END for token in copies) < settings.length else "length"

    def _steps_by(
        self, known: Sequence[list[int]], items: Sequence[int], settings: StorySettings
    ) -> Iterator[Sequence[int]]:
        if settings.arithmetic == "float":
            chosen_by = settings.model_dump(include={"temperature", "top_k", "top_p", "seed"})
            return self._steps(known, settings.length, partial(sampling.choose, **chosen_by, items=torch.tensor(items)))
        model, temperature = quantize(self), round(256 * settings.temperature)
        stories = []
        for ids, item in zip(known, items, strict=True):
            choose = Sampler(model, temperature, settings.top_k, settings.seed + item) if temperature else None
            stories.append(model.decode(ids, settings.length, choose))
        return itertools.zip_longest(*stories, fillvalue=END)

    @torch.no_grad()
    def _steps(self, known: Sequence[list[int]], most: int, choose: Callable[..., Tensor]) -> Iterator[list[int]]:
        """Yield the next token of every story, END from its end on, until all have ended or `most` were yielded."""
        device, past = self.embedding.weight.device, Past(self.config)
        reach = past.size * self.config.layers + len(self.config.memory) + 1  # no token further back has an influence
        rows = [[END, *ids][-reach:] for ids in known]
        longest = max(map(len, rows))
        # Padding before shorter rows counts as another story.
        tokens = torch.tensor([[END] * (longest - len(row)) + row for row in rows], device=device)
        stories = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in rows], device=device)
        for start in range(0, longest, self.config.context):
            part = slice(start, start + self.config.context)
            logits = self(tokens[:, part], stories[:, part], past=past)[:, -1]
        ended = torch.zeros(len(rows), dtype=torch.bool, device=device)
        for number in range(most):
            chosen = choose(logits, number=number).masked_fill(ended, END)
            yield chosen.tolist()
            ended |= chosen == END
            if ended.all() or number == most - 1:
                return
            logits = self(chosen[:, None], torch.ones_like(chosen)[:, None], past=past)[:, -1]


def make_tokenizer(described: Mapping[str, object]) -> "Tokenizer":
    """The tokenizer that a config describes; ValueError if the config has none, or a wrong one."""
    import tokenizers

    if not described:
        raise ValueError("this model was saved without its tokenizer; train it again")
    # The library raises nothing narrower.
    with as_user_error("this model's tokenizer cannot be read (", "); copy its config.json again", Exception):
        tokenizer = tokenizers.Tokenizer.from_str(json.dumps(described))
    tokenizer.encode_special_tokens = True
    return tokenizer


def _pieces(tokenizer: "Tokenizer", tokens: Iterator[int]) -> Iterator[str]:
    """Yield the text of tokens up to END; bytes that are not yet a whole character are held back."""
    held: list[int] = []
    for token in itertools.takewhile(lambda token: token != END, tokens):
        held.append(token)
        if (text := tokenizer.decode(held)) and not text.endswith("\ufffd"):
            yield text
            held = []
    if held:
        yield tokenizer.decode(held)
