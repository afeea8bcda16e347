"""Contents of each family's page: kernels, tensors, and PyTorch's answers to a few inputs."""

import json
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import numpy as np
import safetensors.torch
import torch

from common import text
from common.errors import UserError
from common.packages import neighbour
from exporters import to_rp2040
from exporters.onnx.cnn_lstm import random_candles
from exporters.rp2040 import layout, settings
from models.images.comparator import familiarity, scorer
from models.images.comparator.interface import Comparator
from models.images.comparator.scorer import Scorer
from models.images.comparator.siamese import Siamese
from models.inputs import LONGEST_PROMPT
from models.io import Model
from models.market import candle_features, pooled_experts
from models.market.pooled_experts import PooledExperts
from models.market.rule import NEVER
from models.market.signal_model import facts
from models.plans import chains, mixing, readers
from models.plans.char_lstm import CharLSTM
from models.plans.char_mixture import CharMixture
from models.plans.characters import COPIED
from models.plans.suggester import SUGGESTED
from models.routing.policy import RoutingPolicy
from models.stories.integer_transformer import Sampler
from models.stories.quantization import quantize
from models.stories.tiny_transformer import TinyTransformer

WEIGHTS = "model.safetensors"
# The texts and scripts of each family's page: fields of `Packed`.
PAGES = json.loads(Path(__file__).with_name("pages.json").read_text())
RUNTIME = to_rp2040.RUNTIME.with_suffix(".wasm")
OWN = "web_page"  # the module with `pack` beside that of a family of the user's own
MOST_TOKENS = 64  # of a story that is compared
SUGGESTED_AFTER = 400  # characters that a page reads at every key for suggestions
HASH_BITS = 43  # as in chains.js; with more, differences of a hundred thousand would not fit into 32 bits
UNCORRECTED = "none in this page; the run's probabilities are corrected by its newest labels"
BUDGET = 32  # references that an image is compared with


@dataclass(frozen=True)
class Packed:
    """The contents of a model's page."""

    heading: str
    said: str  # a sentence for readers
    panel: str  # of common/browser; empty: one of the kernels has it
    kernels: Sequence[str | Path]  # files of this folder, or from elsewhere
    config: Mapping[str, object]  # for the kernel
    about: Mapping[str, object]  # for the panel
    files: Mapping[str, bytes]
    # {"method", "arguments", "output"}: calls of the kernel when the page opens, and the answers expected
    expected: Sequence[Mapping[str, object]]
    further_panels: Sequence[str] = ()  # of the kernels


def pack(model: Model, run: Path) -> Packed:
    """Return the contents of the page of a run's model. Raises UserError, naming its kind, if it has no page."""
    own = neighbour(type(model).__module__, OWN)
    packer: Callable[..., Packed] | None = own.pack if own else PACKERS.get(model.family)
    if packer is None:
        known = f"those of {', '.join(PACKERS)} have one, and those with {OWN}.py and its pack(model, run)"
        raise UserError(f"models of the family {model.family!r} have no page; {known} beside the model's module")
    return packer(model, run)


def _call(method: str, *arguments: object, output: object) -> dict[str, object]:
    return {"method": method, "arguments": arguments, "output": output}


def _weights(model: Model, changed: Mapping[str, torch.Tensor | None] | None = None) -> bytes:
    """Return a file of the model's tensors, updated by `changed` (None: left out): float32, smallest integer types."""
    tensors: dict[str, torch.Tensor | None] = {**model.state_dict(), **(changed or {})}
    kept = {name: _narrowed(tensor).contiguous() for name, tensor in tensors.items() if tensor is not None}
    return safetensors.torch.save(kept)


def _narrowed(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_floating_point():
        return tensor.float()
    least, most = (int(tensor.min()), int(tensor.max())) if tensor.numel() else (0, 0)
    types = (torch.uint8, torch.int16, torch.int32, torch.int64)
    return tensor.to(next(each for each in types if torch.iinfo(each).min <= least and most <= torch.iinfo(each).max))


def _stories(model: TinyTransformer, run: Path) -> Packed:
    """Pack the chip's files; the tokens are those of the integer reference."""
    integers, chosen = quantize(model), settings.of_run(run)
    vocabulary = layout.pack_vocabulary(model.config.tokenizer)
    given = {"length": chosen.tokens, "temperature": chosen.temperature, "top_k": chosen.top_k, "seed": chosen.seed}
    ids, expected = model.encoded(model.beginning), []
    for temperature in (0.0, 0.8):
        choose = Sampler(integers, round(256 * temperature), 40, 7) if temperature else None
        tokens = list(integers.decode(ids, MOST_TOKENS, choose))
        asked = {"length": MOST_TOKENS, "temperature": temperature, "top_k": 40, "seed": 7}
        answer = {"prompt_tokens": ids, "tokens": tokens, "text": model.tokenizer.decode(tokens)}
        expected.append(_call("predict", {"prompt": model.beginning}, asked, output=answer))
    return Packed(
        **PAGES[model.family],
        config={"settings": given, "longest_prompt": 4000, "lower_case": model.lower_case},
        about={"stories": True, "settings": given, "unit": "tokens", "longest_prompt": 1000}
        | {"prompt": chosen.prompt or model.beginning},
        files={
            "runtime.wasm": RUNTIME.read_bytes(),
            "model.bin": layout.pack_model(integers, vocabulary),
            "vocabulary.bin": vocabulary,
            "runtime.bin": to_rp2040.RUNTIME.read_bytes(),
            "settings.bin": chosen.pack(),
        },
        expected=expected,
    )


def _routes(model: RoutingPolicy, run: Path) -> Packed:
    config = model.config
    if config.kind != "gt" or config.rules or config.one_way:
        beyond = "of one-way roads" if config.one_way else "with windows and limits"
        what = f"of kind {config.kind!r}" if config.kind != "gt" else beyond
        raise UserError(f"a routing policy {what} has no page; train one with model.kind=gt data.problem=cvrp")
    generator, expected = np.random.default_rng(0), []
    for customers, decode, augment in ((20, "greedy", False), (12, "multistart", True)):
        places = generator.random((customers + 1, 2)).round(3).tolist()
        demands = generator.integers(1, 10, customers).tolist()
        asked = {"depot": places[0], "customers": places[1:], "demands": demands, "capacity": 30}
        answer = next(model.predict([asked], milliseconds=0, decode=decode, augment=augment))
        if decode == "multistart":
            del answer["routes"]  # several starts and symmetries find the same tour, in other orders
        expected.append(_call("predict", asked, {"decode": decode, "augment": augment}, output=answer))
    sizes, files = {name: getattr(config, name) for name in ("width", "heads", "layers")}, {WEIGHTS: _weights(model)}
    return Packed(**PAGES[model.family], config=sizes, about={"rivals": True}, files=files, expected=expected)


def _text(model: CharLSTM, run: Path) -> Packed:
    config, characters = model.config, model.characters
    prompt = "The information manager is responsible for the delivery of "
    document = f"# Roles\n\nThe appointed party agrees the roles.\n{prompt}"  # with all that contexts depend on
    first, *others = characters.encode(document)
    reader = model.reader(first)
    reader.skim(np.array(others))
    likely = next(model.predict([{"prompt": prompt}], length=40, temperature=0))["text"]
    given = {"length": 200, "temperature": 0.5, "seed": 0}
    described = {
        **{name: getattr(config, name) for name in ("width", "layers", "embedding", "lower_case")},
        "texts": characters.texts,
        "ids": characters.ids,
        "settings": given,
        "longest_prompt": LONGEST_PROMPT,
        "suggested": SUGGESTED,
        "longest_suggested": SUGGESTED_AFTER,
    }
    changed: dict[str, torch.Tensor | None] = {}
    if isinstance(model, CharMixture):
        described |= {"classes": model.classes.tolist(), "mixture": _constants()}
        changed["keys"] = _leading(model.get_buffer("keys").numpy())
        changed["offsets"] = _differences(model.get_buffer("offsets").numpy())
        # Stored documents are not for everyone who gets a page: it has only hashes of pieces that must not be copied.
        changed["text"] = None
        if model.config.documents:
            described["powers"] = [str(power) for power in text.powers(text.BASE, COPIED)]
            changed["copies"] = _leading(np.sort(chains.mixed(text.hashes(model.copies, COPIED)).view(np.int64)))
    return Packed(
        **PAGES[model.family],
        config=described,
        about={"settings": given, "unit": "characters", "prompt": prompt, "longest_prompt": LONGEST_PROMPT},
        files={WEIGHTS: _weights(model, changed)},
        expected=[
            _call("ahead", document, output=reader.ahead().tolist()),
            _call("predict", {"prompt": prompt}, {**given, "length": 40, "temperature": 0}, output={"text": likely}),
        ],
    )


def _leading(hashes: np.ndarray) -> torch.Tensor:
    """Return the leading bits of ascending, mixed hashes (N,) int64: few enough for a page, yet rarely equal."""
    return _differences(((hashes.view(np.uint64) ^ np.uint64(1 << 63)) >> np.uint64(64 - HASH_BITS)).astype(np.int64))


def _differences(ascending: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.diff(ascending, prepend=0))


def _constants() -> dict[str, object]:
    """Return the constants of models/plans (chains.py, mixing.py) that its kernel needs."""
    return {
        "base": str(chains.BASE),  # as text, since it has more than 53 bits
        "tag": str(chains.TAGS[0]),
        "num_words": chains.WORDS,
        "kinds": _named(chains, "word letter line_end closing"),
        "chains": [[levels.start, levels.stop] for levels in chains.CHAINS],
        "discounts": [chains.DISCOUNTS] * chains.STORED + [chains.OWN_DISCOUNTS] * len(chains.OWN_ORDERS),
        "kinds_borders": chains.KINDS,
        "at_once": readers.AT_ONCE,
        **_named(chains, "orders section_orders own_orders longest_heading totals reach"),
        **_named(mixing, "entropies fine_entropies lengths bases"),
        "least": mixing.SMALLEST,
    }


def _named(module: ModuleType, names: str) -> dict[str, object]:
    return {name: getattr(module, name.upper()) for name in names.split()}


def _signals(model: PooledExperts, run: Path) -> Packed:
    config = model.config
    candle_features.check(config.features)
    candles = random_candles(0, model.candles_needed + 5, config.timeframe_ms)
    asked = {"coin": config.coins[0], "candles": {name: column.tolist() for name, column in candles.columns().items()}}
    about, plain = facts([model]), copy(model)
    if model.rule:
        coins = {name: own.model_copy(update={"recalibration": 0}) for name, own in model.rule.coins.items()}
        plain.rule = model.rule.model_copy(update={"coins": coins})
    answer = next(plain.predict([asked], now="newest"))
    if model.recalibration(config.coins[0]):
        answer["recalibration"] = UNCORRECTED
    return Packed(
        **PAGES[model.family],
        config={
            **{name: about[name] for name in ("coins", "timeframe_ms", "candles_needed")},
            "warning": config.warning,
            "rule": model.rule.model_dump() if model.rule else {"never": NEVER},
            "uncorrected": UNCORRECTED,
            "features": config.features,
            "scalers": config.scalers,
            "lookback": config.lookback,
            "memory": candle_features.MEMORY,
            "dilations": pooled_experts.dilations(config.lookback),
            "return_place": model.return_place,
            "volatility_place": model.volatility_place,
            "tree_depth": pooled_experts.DEPTH,
            **_named(pooled_experts, "least_volatility largest_return largest tree_lags least_side least_rest"),
        },
        about=about,
        files={WEIGHTS: _weights(model)},
        expected=[_call("predict", asked, output=answer)],
    )


def _images(model: Comparator, run: Path) -> Packed:
    views = [each for each in model.views.values() if isinstance(each, Siamese | Scorer)]
    config, names = views[0].config, list(model.views)
    if config.texture or config.base:
        kind = f"a {config.kind} {'over a base' if config.base else 'of textures'}"
        raise UserError(f"{kind} has no page; train one with model.texture=false and no model.base")
    # Attributes share the encoder, and scorers its last layer; what else answers for one is its own.
    shared = dict.fromkeys(name for name in views[0].state_dict() if name.startswith(("encoder.", "head.")))
    heads = [_head(view, shared if number else {}) for number, view in enumerate(views)]
    return Packed(
        **{**PAGES["comparator"], "said": PAGES["comparator"]["said"].format(attribute=" or ".join(names))},
        config={
            **{name: getattr(config, name) for name in ("channels", "size", "fit", "layers")},
            "cells": familiarity.CELLS,
            "budget": BUDGET,
            "attributes": [own for own, _, _ in heads],
        },
        about={"attribute": names[0], "attributes": names, "digits": config.channels == 1},
        files={f"model-{n}.safetensors" if n else WEIGHTS: weights for n, (_, weights, _) in enumerate(heads)},
        expected=[question for *_, questions in heads for question in questions],
    )


def _head(
    model: Siamese | Scorer, left_out: Mapping[str, None]
) -> tuple[dict[str, object], bytes, list[dict[str, object]]]:
    """Return an attribute's config for the kernel, its tensors without those `left_out`, and the calls to compare."""
    config, images, references = model.config, model.example()["images"], model.reference_scores.tolist()
    scores = bool(references) or isinstance(model, Scorer)
    if scores and not model.fitted.any():
        model.fit_scale()
    with torch.no_grad():
        # One pair with each order, as for `compare`.
        one, other, tie = model.compare(images[0], images[1]).tolist()
    levels = familiarity.levels(model.reference_images)
    # Encoded here, as a hundred encodings would take most of a page's time to open.
    carried = {"encoded_references": model.encoded_references(), "reference_levels": levels} if references else {}
    shown, settings = [{"pixels": image.flatten().tolist()} for image in images], {"attribute": config.attribute}
    answer = {"first_is_higher": one, "second_is_higher": other, "tie": tie}
    expected = [_call("predict", {"first": shown[0], "second": shown[1]}, settings, output=answer)]
    if scores:
        rows = sorted(enumerate(model.score(images, BUDGET)[0].tolist()), key=lambda row: -row[1])
        said = familiarity.notes(images, model.reference_images)
        ranking = [{"image": number, "score": score, **said[number]} for number, score in rows]
        expected.append(_call("predict", {"images": shown}, settings, output={"ranking": ranking}))
    own = {
        **{name: getattr(config, name) for name in ("attribute", "theta", "unit")},
        "references": references,
        "note": familiarity.NOTE if len(references) >= familiarity.FEWEST else None,
        "farthest": familiarity.reach(levels) if len(references) > 1 else 0.0,
        "fitted": model.fitted.tolist(),
        "prior": model.prior.tolist(),
    }
    if isinstance(model, Scorer):
        bounds = scorer.LEAST_LOG_ERROR, scorer.MOST_LOG_ERROR
        own |= {"place": model.place, "standard": model.standard, "log_errors": bounds}
    return own, _weights(model, {"reference_images": None, **left_out, **carried}), expected


# By the family of a model.
PACKERS: dict[str, Callable[..., Packed]] = {
    "tiny_transformer": _stories,
    "routing": _routes,
    "char_lstm": _text,
    "char_mixture": _text,
    "pooled_experts": _signals,
    "comparator": _images,
}
