"""Next-token prediction on packed stories."""

import math
import mmap
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from common.text import token_nats
from models.stories import rp2040
from models.stories.ngram_counts import MOST_COUNTED
from models.stories.tiny_transformer import TinyTransformer
from models.stories.tokens import END
from pipelines.distributed import deferred, ranks
from pipelines.engine.workload import Loss, MapItems, Task
from pipelines.workloads.tinystories import data
from pipelines.workloads.tinystories.config import Config

MOST_REMEMBERED = 1 << 25  # first training tokens, which a memory counts
VALIDATED = 0.25  # most windows validated for each one trained; without gradients they take a third of the time
FEWEST_VALIDATED = 256  # windows
FEW = 100_000  # training characters below which a model makes up words and loses its thread
FROM_BASE = (
    f"model.base={data.SHIPPED} training.steps=60 training.learning_rate=3e-3 training.validation_steps=10 starts "
    "from other stories"
)
ROOM = 4  # a stream is kept on a GPU whose free memory is this many times its size


class Windows:
    """Windows over a stream of tokens; a window is `length` inputs and their targets.

    The stream is kept on the device if it has room for it. With a stride below the length, each window repeats the end
    of the previous one as context. There `counted` is false, so that every target counts exactly once.
    """

    workers = 0

    def __init__(self, stream: np.ndarray, length: int, stride: int, device: torch.device, remembered: int = 0):
        self.size = max(1, math.ceil((len(stream) - 1 - length) / stride) + 1)
        self.remembered = remembered  # tokens of the stream that the model's memory counted
        self.file = stream.base if isinstance(stream.base, mmap.mmap) else None
        self.length, self.stride, self.device = length, stride, device
        tokens = torch.from_numpy(stream.view(np.int16))  # torch has few operations on uint16
        self.tokens = tokens.to(device) if has_room(device, stream.nbytes) else tokens

    def batch(self, items: Tensor) -> dict[str, Tensor]:
        """Return tokens, targets, stories, counted, followed (b, S); a target counts if new and of its input's story.

        Stories are numbered within a window; what lies behind the end of the stream has the number -1. `followed` has
        the targets that the model's memory counted, -1 elsewhere.
        """
        items = items.to(self.tokens.device, non_blocking=True)
        # One token more than is shown tells whether a window's first END begins a story or ends one.
        places = items[:, None] * self.stride + torch.arange(-1, self.length + 1, device=items.device)
        there = (places >= 0) & (places < len(self.tokens))
        found = self.tokens[places.clamp(0, len(self.tokens) - 1)].long() & 0xFFFF
        found = torch.where(there, found, END).to(self.device, non_blocking=True)
        if self.file is not None and hasattr(mmap, "MADV_DONTNEED"):
            self.file.madvise(mmap.MADV_DONTNEED)  # or all pages that were ever read would count as this process's
        tokens = found[:, 1:]
        there, items = (each.to(self.device, non_blocking=True) for each in (there[:, 1:], items))
        begins = (tokens == END) & (found[:, :-1] == END)  # of two in a row, the first one ends a story
        stories = begins.cumsum(1, dtype=torch.int32).masked_fill(~there, -1)
        new = torch.arange(self.length, device=self.device) >= self.length - self.stride
        counted = (stories[:, 1:] == stories[:, :-1]) & (stories[:, 1:] >= 0) & (new | (items[:, None] == 0))
        targets = tokens[:, 1:]
        followed = targets.masked_fill(~counted | (places[:, 2:] >= self.remembered).to(self.device), -1)
        shown = {"tokens": tokens[:, :-1], "targets": targets, "stories": stories[:, :-1]}
        return {**shown, "counted": counted, "followed": followed}


def has_room(device: torch.device, size: int) -> bool:
    """Whether a device can keep so many bytes."""
    return device.type != "cuda" or torch.cuda.mem_get_info(device)[0] > ROOM * size


def unseen(folder: Path, split: str, sequence: int, device: torch.device) -> Windows:
    """Return a split as windows to judge by: each target has at least half a sequence of its story as context."""
    return Windows(data.tokens(folder, split), sequence, sequence // 2, device)


def text_only(batch: Mapping[str, Tensor]) -> Tensor:
    """Return (b, S) bool: the targets that count and are text; the ends of stories are not."""
    return batch["counted"] & (batch["targets"] != END)


class StoriesTask(Task):
    """Next-token prediction of the text and the end of each story, never from one story into the next."""

    def __init__(self, config: Config, folder: Path, device: torch.device):
        training = data.tokens(folder, "train")
        if config.model.base is None:
            sizes = replace(config.model.resolved(data.tokenizer(folder)), vocabulary=data.facts(folder)["vocabulary"])
            self.model = deferred.made(lambda: TinyTransformer(sizes), device)
            remembered = training[:MOST_REMEMBERED]
            if self.model.memory is not None:
                self.model.memory.count(remembered, data.numbers(remembered))
        else:
            base, remembered = data.load_base(config.model.base), training[:0]
            self.model = TinyTransformer(replace(base.config, dropout=config.model.dropout)).to(device)
            self.model.load_state_dict(base.state_dict())
            if self.model.memory is not None:  # of the base's text only the means are known
                self.model.memory.requires_grad_(False)
        sequence = config.sequence(self.model.config.context)
        self.train = Windows(training, sequence, sequence, device, len(remembered))
        if self.model.counts is not None:
            counted = training[-MOST_COUNTED:]
            self.model.counts.count(counted, data.numbers(counted))
            self.unseen = data.tokens(folder, "validation")
        self.validation = unseen(folder, "validation", sequence, device)
        trained = config.training.validation_steps * config.training.batch_size
        passes = 1 if self.model.counts is None else 2  # counts are fitted by a pass of their own
        self.most_validated = max(FEWEST_VALIDATED, round(trained * VALIDATED / passes))
        self.validation.size = min(self.validation.size, self.most_validated)
        self.facts = data.facts(folder)
        self.notes = self._notes(config)

    def _notes(self, config: Config) -> list[str]:
        facts, sizes = self.facts, self.model.config
        notes = [
            f"stories: {facts['source']}; {facts['train']['stories']:,} to train on, "
            f"{facts['validation']['stories']:,} to pick the best model by, {facts['held_out']['stories']:,} held out "
            f"({facts['split']})",
            f"SRAM of the RP2040: {rp2040.sram_bytes(sizes):,} of {rp2040.SRAM_BYTES:,} bytes",
        ]
        if config.model.base is None and facts["train"]["characters"] < FEW:
            notes.append(f"these teach few words: {FROM_BASE}")
        if (size := self.validation.size) == self.most_validated:
            notes.append(f"validation: the first {size:,} windows, so that it takes at most a tenth of the time")
        if duplicates := facts["duplicates_removed"]:
            notes.append(f"stories that stand in the text more than once: {duplicates:,} repetitions are left out")
        if nuls := facts["nul_characters_removed"]:
            notes.append(f"NUL characters in the text: {nuls:,} are left out")
        return notes

    def loss(self, model: nn.Module, batch: Mapping[str, Tensor]) -> Loss:
        """Return the cross-entropy in nats, summed over the targets that count."""
        counted = batch["counted"]
        nats = token_nats(model(batch["tokens"], batch["stories"], batch["followed"]), batch["targets"])
        return Loss((nats * counted).sum(), counted.sum())

    def score(self, model: nn.Module, batch: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Return nats and bits over the text of each window; divided by `count`: nats per token, bits per character."""
        counted = text_only(batch)
        nats = (token_nats(model(batch["tokens"], batch["stories"]), batch["targets"]) * counted).sum(1)
        sizes = self.facts["validation"]
        per_character = sizes["tokens"] / sizes["characters"] / math.log(2)
        return {"loss": nats, "bits_per_character": nats * per_character, "count": counted.sum(1)}

    def refit(self, map_items: MapItems) -> Mapping[str, float]:
        """Set the memory's rows to the means under the present vectors, and fit the counts' levels to them."""
        model = self.model
        if model.memory is not None:
            model.memory.refit()
        if model.counts is None:
            return {}

        def nats(batch: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
            logits = model(batch["tokens"], batch["stories"], sharpen=False)
            return {"nats": token_nats(logits, batch["targets"]), "counted": text_only(batch)}

        found = map_items(self.validation, nats)
        counts, counted, windows = model.counts, found["counted"], self.validation
        places = (torch.arange(windows.size)[:, None] * windows.stride + torch.arange(windows.length))[counted]

        def fitted() -> tuple[float, Tensor]:
            seen = counts.seen(self.unseen, data.numbers(self.unseen))[places]
            return counts.fit(seen, found["nats"][counted].double()), counts.levels.cpu()

        mixed, levels = ranks.on_main(fitted)
        counts.levels.copy_(levels)
        return {"counts": mixed}
