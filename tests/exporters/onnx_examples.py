"""The examples of ONNX exports beside the models they come from."""

import importlib
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import numpy as np
import torch
from PIL import Image

from exporters.onnx import SHARED, TOLERANCE
from exporters.onnx.cnn_lstm import largest_difference
from exporters.onnx.routing import instance
from models.images.comparator.interface import Comparator
from models.io import Model
from models.market.candles import COLUMNS, Candles
from models.market.signal_model import SignalModel
from models.plans.char_lstm import CharLSTM
from models.plans.char_mixture import CharMixture
from models.routing.environment import Instances, tour_length
from models.routing.policy import RoutingPolicy
from models.stories.tiny_transformer import TinyTransformer
from models.stories.tokens import END

FRESH = 6  # inputs that are compared
TOKENS = 48  # of each story that is compared
TEXTS, CHARACTERS = 2, 40  # completions that are compared
READ = 60  # characters of texts that are compared


def agree(model: Model, path: Path) -> None:
    """Compare the example in a file with a model; RuntimeError unless they agree."""
    with imported(path) as example:
        COMPARED[SHARED.get(model.family, model.family)](model, example)


@contextmanager
def imported(path: Path) -> Iterator[ModuleType]:
    """Yield a file of an artifact as a module; it and its neighbours leave no bytecode and are forgotten after."""
    neighbours = {each.stem for each in path.parent.glob("*.py")}
    hidden = {name: sys.modules.pop(name) for name in neighbours & sys.modules.keys()}
    sys.path.insert(0, str(path.parent))
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    importlib.invalidate_caches()
    try:
        yield importlib.import_module(path.stem)
    finally:
        sys.path.remove(str(path.parent))
        sys.dont_write_bytecode = writes
        for name in neighbours & sys.modules.keys():
            del sys.modules[name]
        sys.modules.update(hidden)


@torch.no_grad()
def compare_tours(model: RoutingPolicy, example: ModuleType) -> None:
    """Solve fresh instances by the example and by the model; RuntimeError unless lengths agree."""
    equal = 0
    for number in range(FRESH):
        locs, demand, capacity = (each[:1] for each in instance(number))
        instances = Instances(locs, demand, capacity)
        rollout = model(instances, num_starts=locs.shape[1] - 1)
        tour, length = example.solve(locs[0].numpy(), demand[0].numpy(), float(capacity))
        mine, best = torch.tensor(tour)[None, None], float(rollout.cost.min())
        served = [node for node in tour if node]
        if sorted(served) != list(range(1, locs.shape[1])):
            raise RuntimeError(f"the example's tour does not visit every customer once: {tour}")
        if abs(float(tour_length(instances, mine)) - length) > 1e-4 or length > best * (1 + 0.02):
            raise RuntimeError(f"the example's tour has a length of {length}, the model's {best}")
        equal += abs(length - best) < 1e-4
    if equal < 0.98 * FRESH:
        raise RuntimeError(f"only {equal} of {FRESH} instances have tours of equal length")


@torch.no_grad()
def compare_stories(model: TinyTransformer, example: ModuleType) -> None:
    """Tell stories by the example and by the model, token by token; RuntimeError unless all tokens are equal."""
    generator = torch.Generator().manual_seed(0)
    for number in range(FRESH):
        length = 1 + number % (model.config.context + 8)
        prompt = torch.randint(2, model.config.vocabulary, (length,), generator=generator).tolist()
        tokens = example.tell(prompt, TOKENS)
        row = torch.tensor([[END, *prompt, *tokens]])
        expected = model(row)[0].argmax(-1).tolist()[length:]
        ends = [END] if len(tokens) < TOKENS else []
        if [*tokens, *ends] != expected[: len(tokens) + len(ends)]:
            raise RuntimeError(
                f"after the tokens {prompt} the example goes on with {tokens}, the model with {expected}"
            )


def compare_texts(model: CharLSTM, example: ModuleType) -> None:
    """Complete texts by the example and by the model; RuntimeError unless all characters are equal."""
    if isinstance(model, CharMixture):
        compare_mixture(model, example)
    generator = torch.Generator().manual_seed(1)
    for number in range(TEXTS):
        places = torch.randint(len(model.config.vocabulary), (5 + 7 * number,), generator=generator)
        prompt = "".join(model.config.vocabulary[place] for place in places.tolist())
        expected = model.complete(prompt, CHARACTERS, temperature=0)
        found = example.complete(prompt, CHARACTERS)
        if found != expected:
            raise RuntimeError(f"after {prompt!r} the example goes on with {found!r}, the model with {expected!r}")


def compare_mixture(model: CharMixture, example: ModuleType) -> None:
    """Read and complete texts by the example and by the model; RuntimeError unless they agree."""
    generator = torch.Generator().manual_seed(2)
    drawn = torch.randint(len(model.config.vocabulary), (READ,), generator=generator).tolist()
    tokens = np.array(model.characters.encode("".join(model.config.vocabulary[place] for place in drawn)))
    for name, adapting in (("frozen", False), ("adapting", True)):
        reader = example.Reader(adapting)
        ours = model.reader(int(tokens[0]), reader.adapting)
        reader.read(tokens[:1])
        worst = 0.0
        for token in tokens[1:]:
            worst = max(worst, float(abs(reader.ahead() - ours.ahead().numpy()).max()))
            for each in (reader, ours):
                each.read(np.array([token]))
        if worst > TOLERANCE:
            raise RuntimeError(f"the example's log-probabilities, {name}, are {worst} from the model's")


def compare_signals(model: SignalModel, example: ModuleType) -> None:
    """Classify random candles by the example and by the model; RuntimeError unless all probabilities agree."""
    coins = model.config.coins

    def columns(candles: Candles) -> dict[str, np.ndarray]:
        return {name: getattr(candles, name) for name in COLUMNS}

    largest_difference(model, coins, lambda candles, coin: example.probabilities(columns(candles), coin), "example")


def compare_images(model: Comparator, example: ModuleType) -> None:
    """Compare image files by the example and by the model; RuntimeError unless all probabilities agree."""
    worst = 0.0
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / name for name in ("first.png", "second.png")]
        for number in range(FRESH):
            generator = np.random.default_rng(number)
            for file, coarse in zip(
                files, generator.integers(0, 256, (2, 5, 5 + number % 3, 3), np.uint8), strict=True
            ):
                Image.fromarray(coarse).resize((40 + number, 60), Image.Resampling.BICUBIC).save(file)
            found = example.compare(*(Image.open(file) for file in files))
            worst = max(worst, float(abs(found - model.compare(*files).numpy()).max()))
    if not worst <= TOLERANCE:
        raise RuntimeError(f"the example's probabilities are {worst} from the model's")


# By the module of exporters/onnx that describes a family.
COMPARED: Mapping[str, Callable[..., None]] = {
    "routing": compare_tours,
    "tiny_transformer": compare_stories,
    "char_lstm": compare_texts,
    "cnn_lstm": compare_signals,
    "comparator": compare_images,
}
