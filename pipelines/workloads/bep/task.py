"""Next-character prediction over windows of the documents."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common import noise
from common.errors import UserError
from common.stopping import stop_if_asked
from common.text import token_nats
from common.workers import progress
from models.plans.char_lstm import CharLSTM
from models.plans.characters import END, PAD, UNKNOWN
from pipelines.distributed import deferred, ranks
from pipelines.engine.batches import Order, is_out_of_memory
from pipelines.engine.optim import set_rates
from pipelines.engine.workload import Loss, MapItems, Task
from pipelines.workloads.bep import data
from pipelines.workloads.bep.config import Config
from pipelines.workloads.bep.mixing import Mixer, fewest_counted, load_base, sizes_of

LEARNING_SHARE = 0.4  # of the updates, to train the networks that weights are fitted by
FEW = 50_000  # training characters below which a base's plans add more than they say themselves
FROM_BASE = "model.base=models/pretrained/bep-plans training.steps=600 starts from other plans, and takes less time"


class Windows:
    """Windows over a stream of tokens: `length` inputs and the last one's target, with a window every `stride` tokens.

    The stream takes one or two bytes per token, on the device unless there are workers, and a batch is one gather.
    """

    def __init__(self, tokens: Tensor, length: int, stride: int, device: torch.device, workers: int = 0):
        self.size = max(1, math.ceil((len(tokens) - 1 - length) / stride) + 1)
        self.length, self.stride, self.workers = length, stride, workers
        padding = max(0, (self.size - 1) * stride + length + 1 - len(tokens))
        self.tokens = F.pad(tokens, (0, padding), value=PAD).to("cpu" if workers else device)

    def batch(self, items: Tensor) -> dict[str, Tensor]:
        """Return window (b, length + 1) of small integers, and first (b,) bool: whether it begins the stream."""
        items = items.to(self.tokens.device, non_blocking=True)
        places = items[:, None] * self.stride + torch.arange(self.length + 1, device=items.device)
        return {"window": self.tokens[places], "first": items == 0}


def stream_of(texts: Sequence[np.ndarray]) -> Tensor:
    """Return the tokens of all texts as one stream (N,) uint8 or int16, with <end> before, between and after them."""
    end = np.array([END])
    tokens = np.concatenate([end, *(part for text in texts for part in (text, end))])
    return torch.from_numpy(tokens.astype(np.uint8 if tokens.max() < 256 else np.int16))


def held_out(texts: Sequence[data.Text], sequence: int, device: torch.device, workers: int = 0) -> Windows:
    """Return windows with at least `sequence` characters before each target, except at the stream's beginning."""
    return Windows(stream_of([text.tokens for text in texts]), 2 * sequence, sequence, device, workers)


def scored(batch: Mapping[str, Tensor], stride: int) -> tuple[Tensor, Tensor]:
    """Return the targets (b, S) of held-out windows, and (b, S) bool: whether each is new, and text."""
    targets = batch["window"][:, 1:].long()
    length = targets.shape[1]
    new = (torch.arange(length, device=targets.device) >= length - stride) | batch["first"][:, None]
    return targets, new & (targets != END) & (targets != PAD)


class CharTask(Task):
    """Next-character prediction of documents and their ends."""

    def __init__(self, config: Config, folder: Path, device: torch.device):
        self.config, training, base = config, config.training, load_base(config)
        corpus = data.load(folder)
        self.mixing = config.model.kind == "mixture"
        held_out_text = bool(corpus.facts.get("held_out", True))
        if not (self.mixing or held_out_text):
            raise UserError(f"model.kind={config.model.kind} is judged by held-out text; add data.hold_out=true")
        least, most = config.model.min_documents, fewest_counted(corpus.parts["train"], held_out_text)
        if self.mixing and least > max(most, 1):
            given = f"model.min_documents={least}: of {len(corpus.parts['train'])} training documents, at most"
            counted = f"{max(most, 0)} (versions of a document being one) are counted to predict another"
            raise UserError(f"{given} {counted}, so no context would be; give a smaller number, or more documents")
        sizes = sizes_of(corpus, config, base)
        corpus = data.load(folder, sizes.vocabulary) if base else corpus
        self.sequence, self.unknown = training.sequence, training.unknown
        if self.mixing:
            self.mixer = Mixer(corpus.parts["train"], sizes, config, base, self.learn)
            self.model: CharLSTM = self.mixer.model.to(device)
        else:
            self.model = deferred.made(lambda: CharLSTM(sizes), device)
        workers = config.data.workers
        stream = stream_of([text.tokens for text in corpus.parts["train"]])
        self.train = Windows(stream, training.sequence * training.carry, training.step, device, workers)
        self.validation = held_out(corpus.parts["validation"], training.sequence, device, workers)
        parts = (
            f"{name} {len(texts)} with {sum(len(text.tokens) for text in texts):,} characters"
            for name, texts in corpus.parts.items()
        )
        self.notes = [f"documents: {', '.join(parts)}; vocabulary {len(self.model.characters)}"]
        if base is None and config.data.sources and len(stream) < FEW:
            self.notes.append("these are few: " + FROM_BASE)

    def loss(self, model: nn.Module, batch: Mapping[str, Tensor]) -> Loss:
        """Return the cross-entropy in nats, summed over the targets; a sequence starts from the last one's state."""
        window = batch["window"].long()
        if self.unknown:
            # Held-out text has characters that training never saw. Without this, each would cost a dozen bits or more.
            chosen = noise.drawn(window.shape, self.unknown, window.device)
            window = window.masked_fill(chosen & (window != PAD) & (window != END), UNKNOWN)
        tokens, targets = window[:, :-1], window[:, 1:]
        state, nats = None, torch.zeros((), device=tokens.device)
        for inputs, wanted in zip(tokens.split(self.sequence, 1), targets.split(self.sequence, 1), strict=True):
            logits, state = model(inputs, state)
            state = tuple(part.detach() for part in state)
            nats = nats + token_nats(logits, wanted, PAD).sum()
        return Loss(nats, (targets != PAD).sum())

    def score(self, model: nn.Module, batch: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Return nats and bits over the text of each window; divided by `count`, they are per character."""
        targets, counted = scored(batch, self.validation.stride)
        logits, _ = model(batch["window"][:, :-1].long(), **({"mixed": True} if self.mixing else {}))
        nats = (token_nats(logits, targets, PAD) * counted).sum(1)
        return {"loss": nats, "bits_per_character": nats / math.log(2), "count": counted.sum(1)}

    def learn(self, network: CharLSTM, texts: Sequence[np.ndarray], said: str) -> None:
        """Train a network like the model, but on other texts and in a share of the updates.

        One process computes the whole batch, in parts as large as in training, halved when memory runs out.
        """
        training, device = self.config.training, network.output.weight.device
        source = Windows(stream_of(texts), self.train.length, self.train.stride, device)
        steps = self._learning_steps()
        order, given = Order(source.size, training.batch_size, self.config.seed), training.micro_batch_size
        at_once = training.batch_size // ranks.world() if given == "auto" else given
        noise.by_item(network)
        optimizers = training.optimizers(network)
        network.train()
        with torch.enable_grad(), torch.random.fork_rng(devices=[]):
            for step in progress(range(steps), steps, said):
                stop_if_asked()
                items = order.items(step)
                while not self._differentiate(network, source, items, step, at_once):
                    at_once //= 2
                    network.zero_grad()
                nn.utils.clip_grad_norm_(network.parameters(), training.clip_norm or math.inf)
                set_rates(optimizers, training.rate(step, steps))
                for optimizer in optimizers:
                    optimizer.step()
                    optimizer.zero_grad()

    def _differentiate(self, network: CharLSTM, source: Windows, items: Tensor, step: int, at_once: int) -> bool:
        """Add up the gradients of the mean loss over `items`; return whether `at_once` of them fit into memory."""
        count = (source.batch(items)["window"][:, 1:] != PAD).sum()
        try:
            for part in items.split(at_once):
                noise.begin(self.config.seed, step, part)
                (self.loss(network, source.batch(part)).value / count).backward()
        except (RuntimeError, MemoryError) as error:
            if at_once == 1 or not is_out_of_memory(error):
                raise
            return False
        finally:
            noise.end()
        return True

    def refit(self, map_items: MapItems) -> Mapping[str, float]:
        """Fit the mixture's weights, once; return the nats per token afterwards."""
        return self.mixer.fit() if self.mixing else {}

    def state_dict(self) -> dict[str, object]:
        """Return the nats that the fit of the mixture left, and the number of updates it was made with."""
        return {"fitted": self.mixer.fitted, "learning_steps": self._learning_steps()} if self.mixing else {}

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Restore `state_dict`; fits of older checkpoints, or of fewer steps, differ and are repeated."""
        if self.mixing and state.get("learning_steps") == self._learning_steps():
            assert isinstance(state["fitted"], dict), "as `state_dict` wrote it"
            self.mixer.fitted = dict(state["fitted"])

    def _learning_steps(self) -> int:
        return math.ceil(LEARNING_SHARE * self.config.training.num_steps(self.train.size))
