"""What each coin's model knew of the test part, beside what anyone could know, and what trading on it would have paid.

A coin is judged on the tests of all its folds joined in time; its folds are traded and shown one by one too. Nothing is
chosen on the test: thresholds and temperatures come from the validation part. The intervals of n coins have the
confidence 1 - 0.05 / n (Bonferroni), so that asking many coins does not make one of them look skilled.
"""

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from common.errors import UserError
from common.prepared import MANIFEST
from pipelines.engine.workload import Evaluation, MapItems
from pipelines.workloads.crypto import backtest, data, judge
from pipelines.workloads.crypto.backtest import Choice, Result
from pipelines.workloads.crypto.data import Coin
from pipelines.workloads.crypto.judge import LEAK, SKILL
from pipelines.workloads.crypto.labels import CLASSES, NO_TRADE
from pipelines.workloads.crypto.task import Member, members, windows

if TYPE_CHECKING:
    from pipelines.workloads.crypto import Config

SPLIT = "test"
ERROR = 0.05  # of the intervals of all coins together; a false `skill` errs to one side and has half of it
TAIL_DRAWS = 10  # resamples beyond an interval's end; fewer do not tell where it is
WINDOWS_AT_ONCE = 1024
EQUITY_POINTS = 400  # of a curve that is drawn
DAY = 86_400_000
SCORES = (
    "log_loss", "direction_log_loss", "macro_f1", "accuracy", "balanced_accuracy", "mcc", "brier", "calibration_error",
    "directional_hit_rate",
)  # fmt: skip
SUMMARY = (
    "n", "macro_f1", "log_loss", "prior_log_loss", "direction_log_loss", "prior_direction_log_loss", "accuracy",
    "never_predicted",
)  # fmt: skip
TRADING = (
    "net_return", "buy_and_hold_return", "num_trades", "win_rate", "profit_factor", "expectancy", "max_drawdown",
    "sharpe", "sortino", "calmar", "exposure", "turnover", "break_even_fee",
)  # fmt: skip


@dataclass(frozen=True)
class Scored:
    """A model's word on n windows of a part of a coin, in order of time."""

    ends: np.ndarray  # (n,) rows at which they end
    times: np.ndarray  # (n,) ms, when those candles open
    labels: np.ndarray  # (n,)
    logits: np.ndarray  # (n, 3)
    probabilities: np.ndarray  # (n, 3) float64 of the float32 softmax


@dataclass(frozen=True)
class Tested:
    """A coin in one fold, with everything that its test is judged by."""

    member: str
    fold: int
    test: Scored
    prior: np.ndarray  # (3,) shares of the classes in training
    others: Mapping[str, np.ndarray]  # baseline -> (n, 3)
    temperature: float
    choice: Choice
    rows: np.ndarray  # (m,) candles that are traded
    signals: np.ndarray  # (m,)


def evaluate(
    config: "Config", models: Mapping[str, nn.Module], folder: Path, device: torch.device, map_items: MapItems
) -> list[Evaluation]:
    """The test part of every coin that has a model; members without one are listed with the reason.

    Raises UserError if there is no model at all, or if one was trained on other candles or features than the folder's.
    """
    began = time.perf_counter()
    coins = config.model.coins
    chosen = {name: Member(coins, config.model.fold) for name in models} if coins else members(config, folder)
    failed = json.loads((folder / MANIFEST).read_text())["failed"]
    missing = {
        name: next((failed[symbol] for symbol in member.symbols if symbol in failed), "no trained model")
        for name, member in chosen.items()
        if name not in models
    }
    if len(missing) == len(chosen):
        raise UserError(f"none of the {len(chosen)} members has a trained model: " + _listed(missing))

    wanted: dict[str, list[tuple[str, int, int]]] = {}  # coin -> member, fold, number of the coin in it
    for name in (name for name in chosen if name in models):
        for number, symbol in enumerate(chosen[name].symbols):
            wanted.setdefault(symbol, []).append((name, chosen[name].fold, number))
    confidence = 1 - ERROR / len(wanted)
    pages, examples, tests = {}, {name: [] for name in ("symbol", "time_ms", "fold", "label", *CLASSES)}, {}
    for symbol, places in wanted.items():
        coin = data.load(folder, symbol)
        tests[symbol] = [
            _test(config, models[name], coin, name, fold, number, device, map_items) for name, fold, number in places
        ]
        pages[symbol] = _page(config, coin, tests[symbol], confidence)
        _append(examples, symbol, tests[symbol])

    ranking = sorted(pages.values(), key=_evidence)
    absent = [symbol for symbol in data.symbols(config.data) if symbol not in pages]
    verdicts = [page["verdict"] for page in ranking]
    summary = {
        "coins": len(pages),
        **{name: verdicts.count(verdict) for name, verdict in (("skill", SKILL), ("leaks_suspected", LEAK))},
        "interval_confidence": confidence,
        # At the confidence used, and had every coin been asked at the usual 95 %.
        "skill_by_chance_at_most": ERROR / 2,
        "skill_by_chance_at_95_percent": len(pages) * 0.025,
        "simulated": data.source_of(config.data) == "simulate",
        "mean_net_return": float(np.mean([page["backtest"]["net_return"] for page in ranking])),
        "mean_buy_and_hold": float(np.mean([page["backtest"]["buy_and_hold_return"] for page in ranking])),
        "n": len(examples["symbol"]),
        "failed": missing,
        "together": _together(config, tests),
        **{page["symbol"]: _summary(page) for page in ranking},
    }
    table = [_row(page) for page in ranking]
    table += [{"coin": symbol, "verdict": "not evaluated"} for symbol in absent]
    return [
        Evaluation(
            split=SPLIT,
            summary={**summary, "seconds": time.perf_counter() - began},
            table=table,
            examples=examples,
            files={f"{SPLIT}/{symbol}.json": json.dumps(page, allow_nan=False) for symbol, page in pages.items()},
        ),
        *([] if coins else _of_members({name: chosen[name] for name in models}, pages)),
    ]


def _of_members(chosen: Mapping[str, Member], pages: Mapping[str, Mapping[str, Any]]) -> list[Evaluation]:
    """What each member's own folder keeps, for its export to take along: the pages of its coins."""
    return [
        Evaluation(
            split=SPLIT,
            summary=pages[member.symbols[0]]
            if len(member.symbols) == 1
            else {symbol: pages[symbol] for symbol in member.symbols},
            member=name,
        )
        for name, member in chosen.items()
    ]


def _listed(missing: Mapping[str, str]) -> str:
    """The first few members and why they have no model."""
    told = [f"{name}: {reason}" for name, reason in list(missing.items())[:5]]
    return "; ".join(told) + ("; ..." if len(missing) > len(told) else "")


def _test(
    config: "Config",
    model: nn.Module,
    coin: Coin,
    member: str,
    fold: int,
    number: int,
    device: torch.device,
    map_items: MapItems,
) -> Tested:
    """Score a coin's test in a fold, and choose on its validation whatever there is to choose."""
    _check(model, coin, member)
    validation, test = (
        _scored(model, coin, fold, part, windows(coin, fold, part, device, number), map_items)
        for part in ("validation", "test")
    )
    train = coin.folds[fold]["train"]
    labels = coin.labels[train].astype(np.int64)
    last_returns = np.log(coin.candles.close[1:] / coin.candles.close[:-1])  # of row t at t - 1
    others = judge.baselines(
        coin.features[train],
        labels,
        last_returns[train - 1],
        coin.features[test.ends],
        last_returns[test.ends - 1],
        seed=config.evaluation.seed,
    )
    rules, horizon = _rules(config), config.data.horizon
    rows = _candles(validation.ends, horizon)
    market = _market(coin, rows)
    choice = backtest.choose_threshold(_spread(validation, rows), **market, **rules)
    rows = _candles(test.ends, horizon)
    return Tested(
        member=member,
        fold=fold,
        test=test,
        prior=judge.class_shares(labels),
        others=others,
        temperature=judge.fit_temperature(validation.logits, validation.labels),
        choice=choice,
        rows=rows,
        signals=backtest.signals(_spread(test, rows), choice.threshold),
    )


def _check(model: Any, coin: Coin, member: str) -> None:
    """A model must meet the features it knows, of the very candles that it was trained, and so is to be tested, on."""
    symbol, known = coin.candles.symbol, model.config
    if tuple(known.features) != coin.names:
        raise UserError(
            f"{member}: the model knows the features {', '.join(known.features)} in this order, the prepared data of "
            f"{symbol} are {', '.join(coin.names)}; train it anew under another --name"
        )
    if known.about["data_sha256"][symbol] != coin.facts["hash"]:
        raise UserError(
            f"{member}: the candles of {symbol} have changed since it was trained, so its test would hold rows that it "
            "learned from; bring the old files back, or train anew under another --name"
        )


def _scored(model: nn.Module, coin: Coin, fold: int, part: str, source: Any, map_items: MapItems) -> Scored:
    def logits(batch: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        with torch.autocast(batch["windows"].device.type, enabled=False):  # whatever precision it was trained in
            found = model(batch["windows"], batch["coins"]).float()
        return {"logits": found, "probabilities": found.softmax(-1)}

    found = {
        name: values.numpy().astype(np.float64) for name, values in map_items(source, logits, WINDOWS_AT_ONCE).items()
    }
    ends = coin.folds[fold][part]
    if not np.isfinite(found["logits"]).all():
        raise UserError(f"{coin.candles.symbol}: the model's outputs are not finite; train it anew")
    return Scored(ends=ends, times=coin.candles.time[ends], labels=coin.labels[ends].astype(np.int64), **found)


def _rules(config: "Config") -> dict[str, Any]:
    settings = config.evaluation
    rules = {name: getattr(settings, name) for name in ("fee", "slippage", "stop", "target")}
    return {**rules, "horizon": config.data.horizon}


def _candles(ends: np.ndarray, horizon: int) -> np.ndarray:
    """(m,) rows from the first window's end to the last label's; the embargo keeps them out of the next fold's."""
    return np.arange(ends[0], ends[-1] + horizon + 1)


def _market(coin: Coin, rows: np.ndarray) -> dict[str, np.ndarray]:
    """Prices of the rows; whatever lies between two rows that do not follow each other in time is a gap."""
    candles = coin.candles
    gap = np.diff(candles.time[rows], prepend=candles.time[rows[0]] - candles.timeframe_ms) != candles.timeframe_ms
    return {name: getattr(candles, name)[rows] for name in ("open", "high", "low", "close")} | {"gap": gap}


def _spread(scored: Scored, rows: np.ndarray) -> np.ndarray:
    """(m, 3) probabilities of each candle; where no window ends, say after a gap, nothing is known and not traded."""
    spread = np.tile(np.eye(len(CLASSES))[NO_TRADE], (len(rows), 1))
    spread[scored.ends - rows[0]] = scored.probabilities
    return spread


def _page(config: "Config", coin: Coin, folds: Sequence[Tested], confidence: float) -> dict[str, Any]:
    """Everything found out about a coin, as plain values."""
    settings, rules = config.evaluation, _rules(config)
    probabilities, labels, priors = _joined(folds)
    others = {name: np.concatenate([fold.others[name] for fold in folds]) for name in folds[0].others}
    judged = judge.verdict(
        probabilities,
        labels,
        priors,
        others,
        horizon=config.data.horizon,
        resamples=_resamples(settings.repetitions, confidence),
        confidence=confidence,
        seed=settings.seed,
    )
    figures = judge.figures(probabilities, labels, priors)
    tempered = np.concatenate([judge.softmax(fold.test.logits, fold.temperature) for fold in folds])
    rows, signals = (np.concatenate([getattr(fold, name) for fold in folds]) for name in ("rows", "signals"))
    market, per_day = _market(coin, rows), DAY // coin.candles.timeframe_ms
    result = backtest.run(**market, signal=signals, **rules)
    traded = backtest.figures(result, per_day)
    luck = _luck(config, result, market)
    named = {"model": figures, **{name: judge.figures(other, labels, priors) for name, other in others.items()}}
    predictors: list[dict[str, Any]] = [
        {"predictor": name, **{score: found[score] for score in SCORES}} for name, found in named.items()
    ]
    predictors[0]["net_return"] = traded["net_return"]
    predictors += [
        {"predictor": "buy-and-hold", "net_return": traded["buy_and_hold_return"]},
        {"predictor": "random trades (median)", "net_return": luck["median"]},
    ]
    return {
        "symbol": coin.candles.symbol,
        "timeframe": coin.facts["timeframe"],
        "horizon": config.data.horizon,
        "classes": list(CLASSES),
        **judged,
        "interval_confidence": confidence,
        "figures": figures,
        "predictors": predictors,
        "tempered": judge.figures(tempered, labels, priors),
        "backtest": traded,
        "random_trades": luck,
        "folds": [_fold(config, coin, fold, per_day) for fold in folds],
        "equity": _equity(coin, rows, market, result),
    }


def _joined(folds: Sequence[Tested]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Probabilities (n, 3), labels (n,) and priors (n, 3) of all folds, one after the other."""
    return (
        np.concatenate([fold.test.probabilities for fold in folds]),
        np.concatenate([fold.test.labels for fold in folds]),
        np.concatenate([np.tile(fold.prior, (len(fold.test.labels), 1)) for fold in folds]),
    )


def _resamples(repetitions: int, confidence: float) -> int:
    """As many as are asked for, and enough that a wide interval's ends are not its luckiest resamples."""
    return max(repetitions, math.ceil(2 * TAIL_DRAWS / (1 - confidence)))


def _luck(config: "Config", result: Result, market: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """What the same trades at random moments return, and how often they did at least as well."""
    settings = config.evaluation
    returns = backtest.random_trades(
        result,
        market["open"],
        market["close"],
        market["gap"],
        repetitions=settings.repetitions,
        seed=settings.seed,
    )
    low, median, high = np.quantile(returns, (0.025, 0.5, 0.975)).tolist()
    as_good = int((returns >= result.equity[-1] - 1).sum())
    p_value = (1 + as_good) / (1 + len(returns)) if len(result.trades) else None
    return {"median": median, "low": low, "high": high, "p_value": p_value}


def _fold(config: "Config", coin: Coin, fold: Tested, per_day: int) -> dict[str, Any]:
    found = judge.figures(fold.test.probabilities, fold.test.labels, fold.prior)
    result = backtest.run(**_market(coin, fold.rows), signal=fold.signals, **_rules(config))
    traded = backtest.figures(result, per_day)
    return {
        "fold": fold.fold + 1,
        "member": fold.member,
        "from_ms": int(fold.test.times[0]),
        "to_ms": int(fold.test.times[-1]),
        "n": found["n"],
        **{name: found[name] for name in ("log_loss", "prior_log_loss", "macro_f1", "accuracy", "majority_accuracy")},
        "temperature": fold.temperature,
        "threshold": fold.choice.threshold,
        "validation_net_return": fold.choice.net_return,
        **{name: traded[name] for name in TRADING},
        "thresholds_tried": list(fold.choice.table),
    }


def _equity(coin: Coin, rows: np.ndarray, market: Mapping[str, np.ndarray], result: Result) -> dict[str, list]:
    """Both curves at no more than EQUITY_POINTS candles, the first and the last among them."""
    kept = np.unique(np.linspace(0, len(rows) - 1, EQUITY_POINTS).round().astype(int))
    held = backtest.buy_and_hold(market["open"], market["close"], result.fee, result.slippage)
    return {
        "time_ms": coin.candles.time[rows[kept]].tolist(),
        "model": result.equity[kept].tolist(),
        "buy_and_hold": held[kept].tolist(),
    }


def _append(examples: dict[str, list], symbol: str, folds: Sequence[Tested]) -> None:
    for fold in folds:
        num = len(fold.test.ends)
        examples["symbol"] += [symbol] * num
        examples["time_ms"] += fold.test.times.tolist()
        examples["fold"] += [fold.fold + 1] * num
        examples["label"] += fold.test.labels.tolist()
        for number, name in enumerate(CLASSES):
            examples[name] += fold.test.probabilities[:, number].tolist()


def _evidence(page: Mapping[str, Any]) -> tuple[bool, bool, float]:
    """Sorts coins: first those of which most is sure to be gained on the prior; a suspected leak is no evidence."""
    gain = page["comparisons"][0]
    unsure = gain["low"] is None
    return page["verdict"] == LEAK, unsure, -gain["gain" if unsure else "low"]


def _together(config: "Config", tests: Mapping[str, Sequence[Tested]]) -> dict[str, Any] | None:
    """What is gained on the prior over all coins at once; what happens to all of them at one time counts as one."""
    if len(tests) < 2:
        return None
    parts = [_joined(folds) for folds in tests.values()]
    probabilities, labels, priors = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    found = judge.block_bootstrap(
        probabilities,
        priors,
        labels,
        horizon=config.data.horizon,
        time=np.concatenate([fold.test.times for folds in tests.values() for fold in folds]),
        resamples=config.evaluation.repetitions,
        seed=config.evaluation.seed,
    )
    return {
        figure: {"gain": found[figure]["gain"], "interval_95": _interval(found[figure])}
        for figure in ("log_loss", "direction_log_loss", "macro_f1")
    }


def _interval(row: Mapping[str, Any]) -> list[float] | None:
    return None if row["low"] is None else [row["low"], row["high"]]


def _summary(page: Mapping[str, Any]) -> dict[str, Any]:
    """The coin's entry in the summary; temperature and threshold are those of its newest model."""
    figures, traded, newest = page["figures"], page["backtest"], page["folds"][-1]
    return {
        "verdict": page["verdict"],
        "reasons": page["reasons"],
        **{name: figures[name] for name in SUMMARY},
        "majority": figures["majority_accuracy"],
        "temperature": newest["temperature"],
        "log_loss_with_temperature": page["tempered"]["log_loss"],
        "threshold": newest["threshold"],
        "net_return": traded["net_return"],
        "buy_and_hold": traded["buy_and_hold_return"],
        "random_trades_p_value": page["random_trades"]["p_value"],
        "folds": [fold["fold"] for fold in page["folds"]],
    }


def _row(page: Mapping[str, Any]) -> dict[str, Any]:
    """The coin's line in the ranking."""
    figures, traded = page["figures"], page["backtest"]
    gain, direction = page["comparisons"][0], page["comparisons"][-1]
    return {
        "coin": page["symbol"],
        "verdict": page["verdict"],
        "nats gained": gain["gain"],
        "interval": _interval(gain),
        "of direction": direction["gain"],
        "macro-F1": figures["macro_f1"],
        "accuracy": figures["accuracy"],
        "majority": figures["majority_accuracy"],
        "sign right": figures["directional_hit_rate"],
        "net return": traded["net_return"],
        "buy-and-hold": traded["buy_and_hold_return"],
    }
