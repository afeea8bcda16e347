"""Training a comparator: both orders of every pair, each different image of a batch encoded once."""

import contextlib
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common.errors import UserError
from common.random import derive_key, uniform
from models import comparator, io, ranking
from models.comparator import Comparator
from models.ranking import SWAPPED
from pipelines.engine.workload import Loss, MapItems, Task
from pipelines.workloads.lmol import data, pairs

if TYPE_CHECKING:
    from pipelines.workloads.lmol import Config

TRIAL_PAIRS, TRIAL_STEPS = 4, 3  # of the gate
SCORED = 100  # validation images by which standard errors are calibrated


class Pairs:
    """Pairs of images, as uint8 or as what a frozen encoder made of them: on the device, or read by workers.

    Item i is pair i. With a `shift`, each of its images is moved by up to so many pixels; what moves in repeats the
    edge. With `turn`, it is turned and mirrored in one of eight ways. Both are a function of (key, i).
    """

    def __init__(
        self,
        images: "Tensor | data.Images",
        pairs: Tensor,
        encoded: Tensor | None = None,
        shift: int = 0,
        turn: bool = False,
        key: int = 0,
        workers: int = 0,
    ):
        self.images, self.pairs, self.encoded = images, pairs.cpu(), encoded  # (N, C, S, S), (P, 3), (N, ...)
        self.device, self.workers = torch.device("cpu") if workers else images.device, workers
        self.shift, self.ways, self.key, self.size = shift, 8 if turn else 1, key, len(pairs)

    def batch(self, items: Tensor) -> dict[str, Tensor]:
        """first, second, label (b,): rows of images (U, C, S, S), or of encoded (U, ...), and the answers."""
        first, second, label = self.pairs[items].T
        # On the CPU, where the pairs are: the device need not be waited for.
        moves = self._moves(items) if self.shift or self.ways > 1 else torch.zeros(1, dtype=torch.long)
        different = self._different()
        unique, rows = torch.unique(torch.cat([first, second]) * different + moves, return_inverse=True)
        first, second = rows.to(self.device).chunk(2)
        batch = {"first": first, "second": second, "label": label.to(self.device)}
        unique = unique.to(self.device)
        if self.encoded is not None:
            return {**batch, "encoded": self.encoded[unique]}
        images = self.images[unique // different]
        return {**batch, "images": self._moved(images, unique % different) if different > 1 else images}

    def _different(self) -> int:
        """In how many ways an image is seen."""
        return (2 * self.shift + 1) ** 2 * self.ways

    def _moves(self, items: Tensor) -> Tensor:
        """(2 b,) in which way the first images of `items` are seen, and then the second ones."""
        return (uniform(self.key, items, 2) * self._different()).long().T.flatten()

    def _moved(self, images: Tensor, way: Tensor) -> Tensor:
        """(U, C, S, S): images (U, C, S, S), each seen in its way (U,)."""
        places = 2 * self.shift + 1
        turn, y, x = (part[:, None] for part in (way // places**2, way // places % places, way % places))
        line = torch.arange(images.shape[-1], device=way.device)
        y, x = (
            torch.where(turn & bit > 0, line.flip(0), line) + move - self.shift for move, bit in ((y, 1), (x, 2))
        )  # (U, S)
        y, x = (each.clamp(0, len(line) - 1) for each in (y, x))
        mirrored = (turn & 4 > 0)[..., None]
        rows = torch.where(mirrored, y[:, None, :], y[:, :, None])  # (U, S, S)
        columns = torch.where(mirrored, x[:, :, None], x[:, None, :])
        image = torch.arange(len(images), device=way.device)[:, None, None, None]
        channel = torch.arange(images.shape[1], device=way.device)[:, None, None]
        return images[image, channel, rows[:, None], columns[:, None]]


class ComparisonTask(Task):
    """Learns answers at the frequencies of unselected pairs, though it trains on as many of each."""

    def __init__(self, config: "Config", folder: Path, device: torch.device):
        self.config, self.comparisons = config, data.load(folder)
        began = time.perf_counter()
        self.model = make_model(config, self.comparisons).to(device)
        parts = {name: torch.as_tensor(self.comparisons.pairs[name]).long() for name in ("train", "validation")}
        # The test images stay off the device, and out of the dictionary.
        used = torch.cat([rows[:, :2].flatten() for rows in parts.values()]).unique()
        workers = config.data.workers
        stored = data.Images(self.comparisons.images, used.numpy(), workers)
        images = stored if workers else stored[torch.arange(len(used))].to(device)
        for rows in parts.values():
            rows[:, :2] = torch.searchsorted(used, rows[:, :2].contiguous())
        if isinstance(self.model, comparator.DictionaryCross):
            with _explained():
                shown = used[parts["train"][:, :2].unique()]
                self.model.learn_dictionary(data.Images(self.comparisons.images, shown.numpy()), config.seed)
        encoded = None
        if self.model.frozen:  # of which there may be more than the device holds too
            some = torch.arange(len(stored)).split(comparator.AT_ONCE)
            home = torch.device("cpu") if workers else device
            for items in some:
                part = self.model.encode_all(stored[items]).to(home)
                encoded = part.new_empty(len(stored), *part.shape[1:]) if encoded is None else encoded
                encoded[items] = part
        moved = {"shift": config.shift, "turn": config.texture, "key": derive_key(config.seed, "lmol", "moves")}
        self.train = Pairs(images, parts["train"], encoded, **moved, workers=workers)
        self.validation = Pairs(images, parts["validation"], encoded, workers=workers)
        self.prior = self._prior(parts["train"][:, 2]).to(device)
        self.notes = self._notes(len(used), time.perf_counter() - began)
        if config.hardware.gradient_checkpointing and hasattr(self.model, "gradient_checkpointing"):
            self.model.gradient_checkpointing = True  # the gate's trial steps have to fit too
        self.notes.append(check_trains(self.model, self))

    def _prior(self, labels: Tensor) -> Tensor:
        """(3,) logarithms of how much more frequent answers are among `labels` than among all training images' pairs.

        First and Second are each other swapped: where they are not equally frequent among the labels, that is chance.
        """
        found = self.comparisons
        natural = pairs.natural_shares(found.scores[found.parts["train"]], found.theta)
        counts = torch.bincount(labels, minlength=3) + 1.0  # none is never asked for
        counts[:2] = counts[:2].mean()
        return (counts / counts.sum()).log() - torch.as_tensor(natural, dtype=torch.float32).log()

    def _notes(self, images: int, seconds: float) -> list[str]:
        found = self.comparisons
        notes = [
            f"{found.attribute} of {found.facts.get('source', self.config.data.source)}: {self.train.size:,} pairs to "
            f"train on, {self.validation.size:,} to validate on, of {images:,} images; similar up to a difference "
            f"of {found.theta * found.unit:g}"
        ]
        if self.train.encoded is not None:
            size = self.train.encoded.numel() * self.train.encoded.element_size()
            notes.append(f"features of {images:,} images, kept: {size / 2**20:.0f} MiB in {seconds:.1f} s")
        return notes

    def loss(self, model: nn.Module, batch: Mapping[str, Tensor]) -> Loss:
        """Cross-entropy, the mean over both orders, and the symmetric divergence between them; sums over pairs.

        The logits are put to the frequencies of the training pairs on their way into the loss (Menon et al. 2021), so
        that they are themselves those of unselected pairs.
        """
        one, other = answers(model, batch)
        nats = cross_entropy(one + self.prior, other + self.prior, batch["label"])
        difference = one.log_softmax(-1) - other.log_softmax(-1)
        divergence = ((one.softmax(-1) - other.softmax(-1)) * difference).sum(-1) / 2
        right = (one.softmax(-1) + other.softmax(-1)).argmax(-1) == batch["label"]
        value = nats + self.config.training.consistency * divergence
        metrics = {"nats": nats.sum(), "divergence": divergence.sum(), "accuracy": right.float().sum()}
        return Loss(value.sum(), len(nats), metrics)

    def score(self, model: nn.Module, batch: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Cross-entropy in nats; whether the mean of both orders is right, and whether they agree."""
        one, other = answers(model, batch)
        return {
            "loss": cross_entropy(one, other, batch["label"]),
            "accuracy": ((one.softmax(-1) + other.softmax(-1)).argmax(-1) == batch["label"]).float(),
            "swap_consistency": (one.argmax(-1) == other.argmax(-1)).float(),
        }

    @torch.no_grad()
    def after_validation(self, map_items: MapItems) -> Mapping[str, float]:
        """How answers become scores, and how far off those of validation images are, beside how sure they are.

        The model keeps both.
        """
        found, model = self.comparisons, self.model
        if not len(found.references):
            return {}
        rows = torch.as_tensor(found.parts["validation"])
        rows = rows[torch.linspace(0, len(rows) - 1, min(SCORED, len(rows))).long()]
        images = data.Images(found.images, rows.numpy())[torch.arange(len(rows))]
        model.standard_error_factor.fill_(1.0)
        comparisons = self.config.evaluation.comparisons
        model.fit_scale(comparisons, self.config.seed)
        scores, errors = model.score(images, comparisons)
        known = torch.from_numpy(found.scores)[rows] * float(found.unit)
        factor = ranking.calibrated(errors, scores, known)
        model.standard_error_factor.fill_(factor)
        return {"val/standard_error_factor": factor, "val/mae": float((scores - known).abs().mean())}


def make_model(config: "Config", comparisons: "data.Comparisons") -> Comparator:
    """The config's comparator for these images, with the references by which it will make scores."""
    model = config.model
    size, channels = comparisons.images.shape[1], comparisons.images.shape[3]
    references = torch.from_numpy(comparisons.references)
    question = {
        "size": size,
        "channels": channels,
        "attribute": comparisons.attribute,
        "theta": comparisons.theta,
        "unit": float(comparisons.unit),
        "references": len(references),
    }
    sizes = {name: value for name in ("width", "layers", "heads") if (value := getattr(model, name))}
    with _explained():
        if model.kind == "llava":
            from models import llava_comparator

            pool = model.pool
            if pool is None:
                pool = llava_comparator.pools(model.base) if model.base else model.preset == "small"
            choices = {name: getattr(model, name) for name in ("preset", "lora", "four_bit")}
            choices |= {"base": model.base or "", "pool": pool}
            built = llava_comparator.build({**question, **choices, **sizes, "seed": config.seed})
        else:
            # A siamese encoder of shapes halves the sides down to about four pixels.
            layers = max(1, (size // 4).bit_length() - 1) if model.kind == "siamese" and not config.texture else 2
            chosen = {"kind": model.kind, "layers": layers, "texture": config.texture, "base": model.base or ""}
            if config.texture:
                chosen["width"] = 24
            built = comparator.build({**chosen, **question, **sizes})
    built.reference_images.copy_(data.Images(comparisons.images, references.numpy())[torch.arange(len(references))])
    built.reference_scores.copy_(torch.from_numpy(comparisons.scores)[references])
    return built


def answers(model: nn.Module, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Logits (b, 3) of the pairs in the order given, and swapped, these in terms of the order given."""
    first, second = batch["first"], batch["second"]
    both = torch.cat([first, second]), torch.cat([second, first])
    one, other = model(batch.get("images"), *both, encoded=batch.get("encoded")).float().chunk(2)
    return one, other[:, SWAPPED]


def cross_entropy(one: Tensor, other: Tensor, label: Tensor) -> Tensor:
    """(b,) nats, the mean over both orders."""
    return (F.cross_entropy(one, label, reduction="none") + F.cross_entropy(other, label, reduction="none")) / 2


def check_trains(model: Comparator, task: ComparisonTask) -> str:
    """The gate before the first step; returns what it found. The model comes out as it went in.

    In trial steps every parameter that is meant to train gets a gradient and moves; what trains is what is saved; and
    the model, saved and loaded again, gives the same logits. UserError if not: hours of training would be for nothing.
    """
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    before = {name: p.detach().clone() for name, p in trained.items()}
    batch = task.train.batch(torch.arange(min(TRIAL_PAIRS, task.train.size)))
    device = model.reference_images.device
    batch = {name: tensor.to(device) for name, tensor in batch.items()}  # with workers it comes from elsewhere
    optimizer = torch.optim.AdamW(trained.values(), lr=1e-3, weight_decay=0.0)
    reached: set[str] = set()
    training = model.training
    model.train()
    try:
        with torch.random.fork_rng(devices=[]):
            for _ in range(TRIAL_STEPS):  # an adapter's first matrix has to wait for its second to leave zero
                task.loss(model, batch).value.backward()
                reached |= {name for name, p in trained.items() if p.grad is not None and p.grad.any()}
                optimizer.step()
                optimizer.zero_grad()
        still = [name for name, p in trained.items() if name not in reached or torch.equal(p, before[name])]
        if still:
            raise UserError(
                f"{_some(still)}: {len(still)} of {len(trained)} parameters that are meant to train get no gradient "
                f"and do not move in a trial step, so training would not train them; choose another model.kind or "
                "model.base"
            )
        unsaved = sorted(trained.keys() - model.state_dict().keys())
        if unsaved:
            raise UserError(f"{_some(unsaved)} would train but not be saved; choose another model.kind or model.base")
        parts = ("lora_", "multi_modal_projector") if getattr(model.config, "lora", False) else ()
        absent = [part for part in parts if not any(part in name for name in trained)]
        if absent:
            raise UserError(f"nothing named {absent[0]} would train; give a model.base with a LLaVA's parts")
        _check_reload(model.eval())
    finally:
        with torch.no_grad():
            for name, p in trained.items():
                p.copy_(before[name])
                p.grad = None
        model.train(training)
    return f"gate: {len(trained)} parameters get gradients, move and are saved; loaded again, the logits are the same"


@torch.no_grad()
def _check_reload(model: Comparator) -> None:
    expected = model(**model.example())
    device = expected.device
    with tempfile.TemporaryDirectory() as folder, _explained():
        io.save(model, folder)
        found = io.load(folder, device)(**model.example())
    # The same kernels on the same CPU give the same bits; a GPU may choose among its own anew.
    tolerance = 0.0 if device.type == "cpu" else 1e-3
    difference = float((found - expected).abs().max())
    if not difference <= tolerance:
        raise UserError(
            f"saved and loaded again, the model's logits differ by {difference:g}; something that trains or the base "
            "is not restored: choose another model.kind or model.base"
        )


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    """What a model refuses is the user's to mend."""
    try:
        yield
    except ValueError as error:
        raise UserError(f"model: {error}") from error


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
