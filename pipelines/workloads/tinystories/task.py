"""Next-token prediction on packed stories."""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from common.text import token_nats
from models.stories import rp2040
from models.stories.config import END
from models.stories.tiny_transformer import TinyTransformer
from pipelines.distributed import deferred, ranks
from pipelines.engine.workload import Loss, MapItems, Task
from pipelines.workloads.tinystories import data
from pipelines.workloads.tinystories.config import Config

ROOM = 4  # a stream is kept on a GPU whose free memory is this many times its size


class Windows:
    """Windows over a stream of tokens; a window is `length` inputs and their targets.

    The stream is kept on the device if it has room for it. With a stride below the length, each window repeats the end
    of the previous one as context. There `counted` is false, so that every target counts exactly once.
    """

    workers = 0

    def __init__(self, stream: np.ndarray, length: int, stride: int, device: torch.device):
        self.size = max(1, math.ceil((len(stream) - 1 - length) / stride) + 1)
        self.length, self.stride, self.device = length, stride, device
        tokens = torch.from_numpy(stream.view(np.int16))  # torch has few operations on uint16
        self.tokens = tokens.to(device) if has_room(device, stream.nbytes) else tokens

    def inputs(self) -> Tensor:
        """Return the place in the stream (windows, S) of each input."""
        return torch.arange(self.size)[:, None] * self.stride + torch.arange(self.length)

    def batch(self, items: Tensor) -> dict[str, Tensor]:
        """Return tokens, targets, stories, counted (b, S); a target counts if it is new and of its input's story.

        Stories are numbered within a window; what lies behind the end of the stream has the number -1.
        """
        items = items.to(self.tokens.device, non_blocking=True)
        # One token more than is shown tells whether a window's first END begins a story or ends one.
        places = items[:, None] * self.stride + torch.arange(-1, self.length + 1, device=items.device)
        there = (places >= 0) & (places < len(self.tokens))
        found = self.tokens[places.clamp(0, len(self.tokens) - 1)].long() & 0xFFFF
        found = torch.where(there, found, END).to(self.device, non_blocking=True)
        tokens = found[:, 1:]
        there, items = (each.to(self.device, non_blocking=True) for each in (there[:, 1:], items))
        begins = (tokens == END) & (found[:, :-1] == END)  # of two in a row, the first one ends a story
        stories = begins.cumsum(1, dtype=torch.int32).masked_fill(~there, -1)
        new = torch.arange(self.length, device=self.device) >= self.length - self.stride
        counted = (stories[:, 1:] == stories[:, :-1]) & (stories[:, 1:] >= 0) & (new | (items[:, None] == 0))
        return {"tokens": tokens[:, :-1], "targets": tokens[:, 1:], "stories": stories[:, :-1], "counted": counted}


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
        sequence = config.sequence
        sizes = replace(config.model.resolved(data.tokenizer(folder)), vocabulary=data.facts(folder)["vocabulary"])
        self.model = deferred.made(lambda: TinyTransformer(sizes), device)
        training = data.tokens(folder, "train")
        if self.model.memory is not None:
            self.model.memory.count(training, data.numbers(training))
        self.train = Windows(training, sequence, sequence, device)
        if self.model.counts is not None:
            self.model.counts.count(training, data.numbers(training))
            self.unseen = data.tokens(folder, "validation")
        self.validation = unseen(folder, "validation", sequence, device)
        self.facts = data.facts(folder)
        self.notes = self._notes()

    def _notes(self) -> list[str]:
        facts, sizes = self.facts, self.model.config
        notes = [
            f"stories: {facts['source']}; {facts['train']['stories']:,} to train on, "
            f"{facts['validation']['stories']:,} to pick the best model by, {facts['held_out']['stories']:,} held out "
            f"({facts['split']})",
            f"SRAM of the RP2040: {rp2040.sram_bytes(sizes):,} of {rp2040.SRAM_BYTES:,} bytes",
        ]
        if duplicates := facts["duplicates_removed"]:
            notes.append(f"stories that stand in the text more than once: {duplicates:,} repetitions are left out")
        if nuls := facts["nul_characters_removed"]:
            notes.append(f"NUL characters in the text: {nuls:,} are left out")
        return notes

    def loss(self, model: nn.Module, batch: Mapping[str, Tensor]) -> Loss:
        """Return the cross-entropy in nats, summed over the targets that count."""
        counted = batch["counted"]
        followed = batch["targets"].masked_fill(~counted, -1)
        nats = token_nats(model(batch["tokens"], batch["stories"], followed), batch["targets"])
        return Loss((nats * counted).sum(), counted.sum())

    def score(self, model: nn.Module, batch: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Return nats and bits over the text of each window; divided by `count`: nats per token, bits per character."""
        counted = text_only(batch)
        nats = (token_nats(model(batch["tokens"], batch["stories"]), batch["targets"]) * counted).sum(1)
        sizes = self.facts["validation"]
        per_character = sizes["tokens"] / sizes["characters"] / math.log(2)
        return {"loss": nats, "bits_per_character": nats * per_character, "count": counted.sum(1)}

    def refit(self, map_items: MapItems) -> Mapping[str, float]:
        """Set the memory's rows to the means under the vectors as they are, and fit the counts' levels to them."""
        model = self.model
        if model.memory is not None:
            model.memory.refit()
        if model.counts is None:
            return {}

        def nats(batch: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
            logits = model(batch["tokens"], batch["stories"], sharpen=False)
            return {"nats": token_nats(logits, batch["targets"]), "counted": text_only(batch)}

        found = map_items(self.validation, nats)
        counts, counted = model.counts, found["counted"]

        def fitted() -> tuple[float, Tensor]:
            seen = counts.seen(self.unseen, data.numbers(self.unseen)).at(self.validation.inputs()[counted])
            return counts.fit(seen, found["nats"][counted].double()), counts.levels.cpu()

        mixed, levels = ranks.on_main(fitted)
        counts.levels.copy_(levels)
        return {"counts": mixed}
