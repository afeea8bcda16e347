"""Export classifiers of candles as a strategy that freqtrade backtests and trades, with the rules of the evaluation.

The strategy needs onnxruntime beside freqtrade: one ONNX program, which takes the tensors of a coin's model as inputs,
classifies for all coins. Features are computed by models/market/candle_features.py, which goes along.
"""

import functools
import io as bytes_io
import json
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from common.foreign_text import printable
from exporters import manifest, portable
from exporters.cards import title
from exporters.onnx import FRESH, Program
from exporters.onnx.cnn_lstm import largest_difference
from exporters.to_onnx import converted
from models import io
from models.market import candle_features
from models.market.candles import Candles
from models.market.pooled_experts import PooledExperts, PooledExpertsConfig
from models.market.rule import NEVER
from models.market.signal_model import ANY

FOLDER = Path(__file__).parent / "freqtrade"
STRATEGY = "SignalStrategy.py"
COPIED = ("models.market.candle_features", "models.market.labels", "models.market.recalibration")
COIN = re.compile(r"\w[\w.-]{0,99}")  # what can be the name of a file in the folder of a strategy


def export(run: Path, model_folder: Path, out: Path) -> str:
    """Write a strategy with the coins of one model."""
    return export_together(run, {run: model_folder}, out)


def export_together(run: Path, members: Mapping[Path, Path], out: Path) -> str:
    """Write a strategy with the coins of all models, by the folder of each member; then prove them equal."""
    coins, arrays, models, rules, warning = {}, {}, {}, {}, dict[str, str]()
    for member, model_folder in members.items():
        model = _model(model_folder)
        warning |= model.config.warning
        for number, coin in enumerate(model.config.coins):
            if not (model.rule and coin in model.rule.coins):
                raise ValueError(f"{coin} of {model_folder} was {NEVER}; evaluate the run first")
            own = model.rule.coins[coin]
            coins[coin] = {
                "features": list(model.config.features),
                "lookback": model.config.lookback,
                "label": model.config.about["label"],
                "threshold": own.threshold,
                "verdict": own.verdict,
                "reason": own.reason,
                "recalibration": own.recalibration,
            }
            warning["headline"], rules[str(member)] = model.rule.headline, _rules(model)
            arrays[coin], models[coin] = _arrays(model, coin, number), model
    first, *others = rules.values()
    if any(other != first for other in others):
        raise ValueError(f"the members of {run} have different rules: {rules}; export them one by one")
    needed = max(model.candles_used(coin) for coin, model in models.items())
    sizes = next(iter(models.values())).config  # which all members of a run share
    files = {
        STRATEGY: (FOLDER / STRATEGY).read_bytes(),
        "signals/__init__.py": b"",
        "signals/classifier.onnx": _program(sizes.features, sizes.lookback, sizes.width, sizes.rounds, sizes.nodes),
        "signals/settings.json": json.dumps(
            {**first, "candles_needed": needed, "timeframe_ms": sizes.timeframe_ms, "coins": coins, **warning}, indent=1
        ).encode(),
        **{f"signals/{name}": data for name, data in portable.copies(*COPIED, prefix=".").items()},
        **{f"signals/{coin}.npz": _packed(each) for coin, each in arrays.items()},
    }
    manifest.begin(out, files, *members.values())
    worst = {coin: _difference(out, coin, models[coin]) for coin in coins}
    size = manifest.finish(
        out,
        tuple(files),
        {
            "format": "freqtrade",
            "run": title(run),
            "coins": {coin: {"threshold": coins[coin]["threshold"]} for coin in coins},
            "fresh_candle_series": FRESH,
            "largest_difference_of_probabilities": worst,
        },
    )
    idle = [coin for coin, each in coins.items() if each["threshold"] is None]
    said = f". {warning['headline']}" + (f". {warning['note']}" if "note" in warning else "")
    never = f"; never traded, as that was best on validation: {', '.join(idle)}" if idle else ""
    return (
        f"{out}: {STRATEGY} with {len(coins)} coins, {size:,} bytes, probabilities at most {max(worst.values()):.2g} "
        f"from the models'{never}{said}; freqtrade backtesting --strategy SignalStrategy --strategy-path {out}"
    )


def _model(folder: Path) -> PooledExperts:
    model = io.load(folder)
    if not isinstance(model, PooledExperts):
        raise ValueError(
            f"{folder} holds a model of the family {model.family!r}; a freqtrade strategy is made of pooled_experts "
            "alone: train with model.kind=pooled_experts, the default of crypto"
        )
    model = model.float()
    if model.config.coins == ANY:
        raise ValueError(
            f"{folder} holds a model of any coin, for trying out; train one on your own candles for a strategy: "
            "accelerate launch pipelines/train.py --workload crypto --name mine data.folder=candles"
        )
    missing = [coin for coin in model.config.coins if coin not in model.config.scalers]
    if missing or not model.config.timeframe_ms:
        raise ValueError(f"{folder} has no scaler of {', '.join(missing) or 'its features'}; train it again")
    wrong = [coin for coin in model.config.coins if not COIN.fullmatch(coin)]
    if wrong:
        raise ValueError(
            f"{folder} has a coin {printable(wrong[0], 100)!r}, which cannot be the name of a file; rename it"
        )
    return model


def _rules(model: PooledExperts) -> dict[str, object]:
    """Return how an evaluation traded a model's signals. Raises ValueError for what freqtrade does not have."""
    assert model.rule is not None
    target, label = model.rule.costs.get("target"), model.config.about["label"]
    if target is not None:
        raise ValueError(
            f"the signals were evaluated with evaluation.target={target}: freqtrade counts profits after fees, so that "
            "its target would be another; evaluate with evaluation.target=null"
        )
    if ":" in label["rule"]:
        raise ValueError(f"a strategy knows no target of your own, {label['rule']}; train with data.label=fixed")
    return {
        "horizon": label["horizon"],
        "stop": model.rule.costs.get("stop"),
        "timeframe": model.config.about["timeframe"],
    }


class Classifier(nn.Module):
    """From features of candles and the tensors of a coin's model to the probabilities after each candle."""

    def __init__(self, model: PooledExperts):
        super().__init__()
        self.model, self.names = model, list(model.state_dict())

    def forward(self, features: Tensor, mean: Tensor, std: Tensor, *tensors: Tensor) -> Tensor:
        """Return probabilities (T - L + 1, 3) of float32 features (T, F)."""
        scaled = ((features.double() - mean) / std).float()[None]
        logits: Tensor = functional_call(self.model, dict(zip(self.names, tensors, strict=True)), (scaled,))
        return logits[0].softmax(-1)


@functools.cache
def _program(features: tuple[str, ...], lookback: int, width: int, rounds: int, nodes: int) -> bytes:
    """Return the program for all models of these sizes."""
    config = PooledExpertsConfig(features=features, lookback=lookback, width=width, rounds=rounds, nodes=nodes)
    model, scaler = PooledExperts(config), torch.ones(len(features), dtype=torch.float64)
    tensors = {"mean": scaler, "std": scaler.clone(), **model.state_dict()}
    inputs = {"features": {0: "candles"}, **{name: dict[int, str]() for name in tensors}}
    drawn = torch.randn(2 * lookback, len(features))
    return converted(
        Program("classifier", Classifier(model), inputs, ["probabilities"], lambda _: (drawn, *tensors.values()))
    )


def _arrays(model: PooledExperts, coin: str, number: int) -> dict[str, np.ndarray]:
    """Return what the program takes for a coin: the model's tensors, its own drift and spread, and its scaler."""
    found = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    found |= {name: found[name][number : number + 1] for name in ("drift", "spread")}
    scaler = model.config.scalers[coin]
    return found | {name: np.array(scaler[name], np.float64) for name in ("mean", "std")}


def _packed(arrays: Mapping[str, np.ndarray]) -> bytes:
    packed = bytes_io.BytesIO()
    np.savez_compressed(packed, **arrays)  # type: ignore[arg-type]
    return packed.getvalue()


def _difference(out: Path, coin: str, model: PooledExperts) -> float:
    """Return the largest difference of probabilities on random candles; RuntimeError if that is no rounding."""
    import onnxruntime  # importing it starts threads

    session = onnxruntime.InferenceSession(out / "signals/classifier.onnx")
    arrays = dict(np.load(out / "signals" / f"{coin}.npz"))

    def probabilities(candles: Candles, coin: str) -> np.ndarray:
        rows = candle_features.compute(candles, model.config.features)
        features = rows[np.isfinite(rows).all(1)].astype(np.float32)
        found: np.ndarray = session.run(None, {"features": features, **arrays})[0]
        return found

    return largest_difference(model, [coin], probabilities, f"the strategy of {coin}")
