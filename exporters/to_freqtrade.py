"""Export classifiers of candles as a strategy that freqtrade backtests and trades, with the rules of the evaluation.

The strategy needs numpy alone beside freqtrade: the classifier is computed from its arrays by
exporters/freqtrade/classifier.py, and its features by models/market/candle_features.py.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from common.foreign_text import printable
from exporters import export_folder, portable
from exporters.cards import title
from exporters.freqtrade.classifier import Classifier
from exporters.onnx import FRESH
from exporters.onnx.cnn_lstm import largest_difference
from models import io
from models.market import candle_features
from models.market.candles import Candles
from models.market.pooled_experts import PooledExperts, dilations
from models.market.rule import NEVER
from models.market.signal_model import ANY

FOLDER = Path(__file__).parent / "freqtrade"
STRATEGY = "SignalStrategy.py"
COPIED = ("models.market.candle_features", "models.market.labels", "models.market.recalibration")
COIN = re.compile(r"\w[\w.-]{0,99}")  # names allowed for a file in the folder of a strategy


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
            coins[coin] = {
                "features": list(model.config.features),
                "lookback": model.config.lookback,
                "fill": model.config.fill + model.config.about.get("longest_still", {}).get(coin, 0),
                "label": model.config.about["label"],
                "classifier": {
                    "lookback": model.config.lookback,
                    "return_place": model.return_place,
                    "volatility_place": model.volatility_place,
                    "dilations": dilations(model.config.lookback),
                },
                **model.rule.coins[coin].model_dump(include={"threshold", "verdict", "reason", "recalibration"}),
            }
            warning["headline"], rules[str(member)] = model.rule.headline, _rules(model)
            # What the classifier reads: the model's tensors, the coin's own drift and spread, and its scaler.
            read = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
            read |= {name: read[name][number] for name in ("drift", "spread")}
            read |= {name: np.array(model.config.scalers[coin][name], np.float64) for name in ("mean", "std")}
            arrays[coin], models[coin] = read, model
    first, *others = rules.values()
    if any(other != first for other in others):
        raise ValueError(f"the members of {run} have different rules: {rules}; export them one by one")
    needed = max(model.candles_used(coin) for coin, model in models.items())
    about = {"candles_needed": needed, "timeframe_ms": next(iter(models.values())).config.timeframe_ms}
    files = {
        STRATEGY: (FOLDER / STRATEGY).read_bytes(),
        "signals/__init__.py": b"",
        "signals/classifier.py": (FOLDER / "classifier.py").read_bytes(),
        "signals/settings.json": json.dumps({**first, **about, "coins": coins, **warning}, indent=1).encode(),
        **{f"signals/{name}": data for name, data in portable.copies(*COPIED, prefix=".").items()},
        **{f"signals/{coin}.npz": portable.packed(each) for coin, each in arrays.items()},
    }
    export_folder.begin(out, files, *members.values())
    worst = {coin: _difference(out, coin, models[coin]) for coin in coins}
    traded = {coin: {"threshold": each["threshold"]} for coin, each in coins.items()}
    proved = {"fresh_candle_series": FRESH, "largest_difference_of_probabilities": worst}
    facts = {"format": "freqtrade", "run": title(run), "coins": traded, **proved}
    size = export_folder.finish(out, tuple(files), facts)
    idle = [coin for coin, each in coins.items() if each["threshold"] is None]
    said = f". {warning['headline']}" + (f". {warning['note']}" if "note" in warning else "")
    never = f"; never traded, as that was best on validation: {', '.join(idle)}" if idle else ""
    return (
        f"{out}: {STRATEGY} with {len(coins)} coins, {size:,} bytes, probabilities at most {max(worst.values()):.2g} "
        f"from the models'{never}{said}; freqtrade backtesting --strategy SignalStrategy --strategy-path {out}"
    )


def _model(folder: Path) -> PooledExperts:
    if not isinstance(model := io.load(folder), PooledExperts):
        kind = "pooled_experts: train with model.kind=pooled_experts, the default of crypto"
        found = f"{folder} holds a model of the family {model.family!r}"
        raise ValueError(f"{found}; a freqtrade strategy needs {kind}")
    model = model.float()
    candle_features.check(model.config.features)
    if model.config.coins == ANY:
        own = "accelerate launch pipelines/train.py --workload crypto --name mine data.folder=candles"
        trial = f"{folder} holds a model of any coin, for trying out"
        raise ValueError(f"{trial}; train one on your own candles for a strategy: {own}")
    missing = [coin for coin in model.config.coins if coin not in model.config.scalers]
    if missing or not model.config.timeframe_ms:
        raise ValueError(f"{folder} has no scaler of {', '.join(missing) or 'its features'}; train it again")
    if wrong := [coin for coin in model.config.coins if not COIN.fullmatch(coin)]:
        raise ValueError(f"{folder} has a coin {printable(wrong[0], 100)!r}, which cannot name a file; rename it")
    return model


def _rules(model: PooledExperts) -> dict[str, object]:
    """Return the evaluation's rules for trading a model's signals. Raises ValueError for those that freqtrade lacks."""
    assert model.rule is not None
    target, label = model.rule.costs.get("target"), model.config.about["label"]
    if target is not None:
        why = "freqtrade counts profits after fees, so its target would differ"
        evaluated = f"the signals were evaluated with evaluation.target={target}"
        raise ValueError(f"{evaluated}: {why}; evaluate with evaluation.target=null")
    if ":" in label["rule"]:
        raise ValueError(f"a strategy cannot compute your own target {label['rule']}; train with data.label=fixed")
    return {
        "horizon": label["horizon"],
        "stop": model.rule.costs.get("stop"),
        "timeframe": model.config.about["timeframe"],
    }


def _difference(out: Path, coin: str, model: PooledExperts) -> float:
    """Return the largest difference of probabilities on random candles; RuntimeError if it exceeds rounding."""
    settings = json.loads((out / "signals/settings.json").read_text())["coins"][coin]
    classifier = Classifier(dict(np.load(out / "signals" / f"{coin}.npz")), **settings["classifier"])

    def probabilities(candles: Candles, coin: str) -> np.ndarray:
        rows = candle_features.compute(candles, model.config.features)
        return classifier.probabilities(rows[np.isfinite(rows).all(1)].astype(np.float32))

    return largest_difference(model, [coin], probabilities, f"the strategy of {coin}")
