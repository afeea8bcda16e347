"""Base of the classifiers of the next move: the description of their input, and predictions from candles.

Shapes: B windows, L candles of a window (lookback), F features, N candles.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from common.disk.files import write_json
from common.plain import Plain
from models import io
from models.market import other_candles, own_features
from models.market.candle_tables import RULES, TIMEFRAMES, minute
from models.market.candles import COLUMNS, Candles
from models.market.inputs import CLASSES, CandlesInput, SignalSettings
from models.market.labels import NO_TRADE, signals
from models.market.recalibration import reach, recalibrated
from models.market.rule import NEVER, RULE, Rule, load

LONGEST_LOOKBACK = 100_000  # candles
ANY = ("",)  # coins of a model that answers for every coin
SIMULATED = "simulated"
NOTE = (
    "This model learnt a simulated market with a planted signal: its answers are an exercise, no forecast of any real "
    "coin"
)
FITTED_AGAIN = (
    "After the choice on validation, these weights were fitted again on training and validation together, as many "
    "updates on the same schedule. Verdict and figures are those of the fit that had not seen validation."
)
ROWS_AT_ONCE = 1024  # predicted


@dataclass(frozen=True, kw_only=True)
class SignalConfig:
    """Description of a model's input."""

    features: tuple[str, ...]  # names in the order of the columns
    lookback: int  # candles of a window
    coins: tuple[str, ...] = ANY  # with several, each window comes with the number of its coin
    scalers: dict[str, dict[str, list[float]]] = field(default_factory=dict)  # coin -> mean and std of each feature
    timeframe_ms: int = 0  # time from one candle to the next
    fill: int = 0  # largest gap, in candles, that training filled
    about: dict[str, Any] = field(default_factory=dict)  # label rule, market, split dates and hashes of the data

    def __post_init__(self) -> None:
        for name in ("features", "coins"):  # JSON has no tuples
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if not 4 <= self.lookback <= LONGEST_LOOKBACK or not self.features or not self.coins:
            raise ValueError(f"a window needs 4 to {LONGEST_LOOKBACK} candles, a feature and a coin")
        if min(self.timeframe_ms, self.fill) < 0:
            raise ValueError(f"timeframe_ms={self.timeframe_ms} and fill={self.fill} must not be negative")
        scaled = dict.fromkeys(("mean", "std"), len(self.features))
        for coin, scaler in self.scalers.items():
            if {name: len(values) for name, values in scaler.items()} != scaled:
                raise ValueError(f"the scaler of {coin!r} must be the mean and std of {len(self.features)} features")
        other_candles.memory(self.others, self.timeframe_ms)  # which refuses unknown timeframes

    @property
    def others(self) -> tuple[str, ...]:
        """The longer timeframes and other coins whose candles features use."""
        return tuple(dict.fromkeys(name.partition(":")[0] for name in self.features if ":" in name))

    @property
    def context(self) -> tuple[str, ...]:
        """The other coins whose candles are inputs."""
        return tuple(name for name in self.others if name not in TIMEFRAMES)

    @property
    def own(self) -> dict[str, str]:
        """The word, SHA-256 and memory of a user's own features; {} without them."""
        found = self.about.get("feature_set")
        return found if isinstance(found, dict) else {}

    @property
    def warning(self) -> dict[str, str]:
        """The note in every answer of a model of the simulated market; {} for other models."""
        return {"market": SIMULATED, "note": NOTE} if self.about.get("market") == SIMULATED else {}

    def place(self, coin: str | None) -> int:
        """Return the number of a coin, which may be None for a model of one. Raises ValueError for an unknown one."""
        if self.coins == ANY or (coin is None and len(self.coins) == 1):
            return 0
        if coin is None or coin not in self.coins:
            raise ValueError(f"this model does not know the coin {coin!r}; give one of {', '.join(self.coins)}")
        return self.coins.index(coin)


class SignalModel(io.Model):
    """A classifier whose forward pass maps scaled features (B, L - 1 + S, F) to logits (B, S, 3) of the last S rows."""

    pipeline_tag = "time-series-forecasting"
    input_type, settings_type = CandlesInput, SignalSettings
    config: SignalConfig
    rule: Rule | None = None  # of the newest evaluation
    stretch = 1  # consecutive rows S that training computes together; more cost little where they share work

    @property
    def candles_needed(self) -> int:
        """How many candles without a gap are needed to predict the signal after the newest."""
        config = self.config
        memory = other_candles.memory(config.others, config.timeframe_ms)
        return max(memory, int(config.own.get("memory", 0))) + config.lookback - 1

    def recalibration(self, coin: str | None) -> int:
        """Return how many of the newest labels correct a coin's probabilities, by the evaluated rule."""
        own = self.rule and self.rule.coins.get(self.config.coins[self.config.place(coin)])
        return own.recalibration if own else 0

    def candles_used(self, coin: str | None = None) -> int:
        """Return the number of candles that the newest signal depends on; with fewer, fewer labels correct it."""
        window = self.recalibration(coin)
        return self.candles_needed + (reach(window, self.config.about["label"]["horizon"]) if window else 0)

    @torch.no_grad()
    def probabilities(
        self,
        candles: Mapping[str, ArrayLike],
        coin: str | None = None,
        now: int | None = None,
        context: Mapping[str, Mapping[str, ArrayLike]] = MappingProxyType({}),
    ) -> Tensor:
        """Return probabilities (N - `candles_needed` + 1, 3) of the classes after each of the last candles.

        `candles` maps time (ms since 1970, when a candle opens), open, high, low, close and volume to their columns
        (N,), and `context` the other coins of the model's inputs to theirs; `now` is the current time in ms, by default
        the clock's. Raises ValueError for missing columns, gaps, impossible prices, too few candles, and a newest
        candle that is not the last closed one.
        """
        known = self._candles(candles, coin, context)
        self._check_age(int(known.time[-1]), int(time.time() * 1000) if now is None else now)
        return self._judged(known)

    def _judged(self, known: Candles) -> Tensor:
        """Return probabilities (S, 3) after each candle with full history, recalibrated by the evaluated rule."""
        config, device = self.config, next(self.parameters()).device
        scaled, number = self.scaled(known), torch.tensor([config.place(known.symbol)], device=device)
        past, found = config.lookback - 1, []
        for start in range(0, len(scaled) - past, ROWS_AT_ONCE):
            found.append(self(scaled[None, start : start + past + ROWS_AT_ONCE].to(device), number)[0])
        logits, window = torch.cat(found).float().cpu(), self.recalibration(known.symbol)
        if not window:
            return logits.softmax(-1)
        outcomes = own_features.labelled(known, **config.about["label"])[-len(logits) :]
        whole, horizon = [slice(0, len(logits))], config.about["label"]["horizon"]
        return torch.from_numpy(np.exp(recalibrated(logits.double().numpy(), outcomes, whole, horizon, window))).float()

    def takes(self, given: CandlesInput) -> bool:
        """Return whether the model knows the input's coin."""
        return given.coin in self.config.coins or self.config.coins == ANY

    def prepared(self, given: CandlesInput, settings: SignalSettings) -> Candles:
        """Return the candles that the newest signal depends on."""
        columns = {name: getattr(given.candles, name) for name in COLUMNS}
        used = self.candles_used(given.coin)
        if len({len(column) for column in columns.values()}) == 1:  # else refused below
            columns = {name: column[-used:] for name, column in columns.items()}
        known = self._candles(columns, given.coin, {name: dict(each) for name, each in given.context.items()})
        newest = int(known.time[-1])
        clock = int(time.time() * 1000) if settings.now is None else settings.now
        self._check_age(newest, newest + self.config.timeframe_ms if isinstance(clock, str) else clock)
        return known

    def answers(self, prepared: Sequence[Candles], settings: SignalSettings) -> list[dict[str, object]]:
        """Return the classes' probabilities after the newest candle, and the signal, of each input."""
        found = [self._judged(known)[-1].tolist() for known in prepared]
        return [
            {
                "coin": known.symbol or None,
                "time": int(known.time[-1]),
                "date": f"{minute(known.time[-1])} UTC",
                "probabilities": dict(zip(CLASSES, row, strict=True)),
                **self._signalled(known.symbol, row, settings.threshold),
                **self._corrected(known),
                **self.config.warning,
            }
            for known, row in zip(prepared, found, strict=True)
        ]

    def _signalled(self, coin: str, row: Sequence[float], asked: float | None) -> dict[str, object]:
        """Return the signal by the evaluated rule, or at the threshold `asked`, with its verdict."""
        own = self.rule and self.rule.coins.get(self.config.coins[self.config.place(coin)])
        if not self.rule or not own:
            return {"signal": signal(row, asked), "verdict": NEVER}
        worth: dict[str, object] = {"verdict": own.verdict, "headline": self.rule.headline}
        found = "NO_TRADE" if asked is None and own.threshold is None else signal(row, asked or own.threshold)
        if asked is None and found == "NO_TRADE":
            worth = {"reason": own.reason or f"no side reaches {own.threshold:g}, the best threshold", **worth}
        elif asked is None:  # even where the verdict is "no skill shown"
            worth = {"signal_is": f"from {own.threshold:g} on, best on validation; the verdict is the test's", **worth}
        return {"signal": found, **worth}

    def _corrected(self, known: Candles) -> dict[str, str]:
        """Return a note on how many labels correct the probabilities, if any do."""
        window, used = self.recalibration(known.symbol), self.candles_used(known.symbol)
        if not window:
            return {}
        fewer = f"{max(window - used + len(known), 0)} of {window} labels, as there are {len(known)} of {used} candles"
        return {"recalibration": fewer if len(known) < used else f"the last {window} labels"}

    def load_beside(self, folder: Path) -> None:
        """Read the rule of the newest evaluation and show it in the card. Raises ValueError for a damaged file."""
        judged = self.config.about.get("judged")
        self.rule = load(folder, self, judged)
        self.card = {**type(self).card, **({"Fit": FITTED_AGAIN} if judged else {})}
        if self.rule:
            each = "".join(
                f"- {own.verdict}" + (f". NO_TRADE: {own.reason}\n" if own.threshold is None else "\n")
                for own in self.rule.coins.values()
            )
            self.card = {**self.card, "Verdict": f"**{self.rule.headline}**\n\n{each}".rstrip()}

    def save_beside(self, folder: Path) -> list[str]:
        """Write the rule; return the names of the files."""
        if self.rule:
            write_json(folder / RULE, self.rule.model_dump())
        return [RULE] * (self.rule is not None)

    def scaled(self, known: Candles) -> Tensor:
        """Return the scaled features of all candles with full history, computed as in training."""
        # Features in float32, scaled in float64.
        config = self.config
        _, table = own_features.compute(known, own_features.of(config.own), config.features, config.others)
        rows = table[self.candles_needed - self.config.lookback :].astype(np.float32)
        if not np.isfinite(rows).all():
            unknown = self.config.features[int(np.isfinite(rows).all(0).argmin())]
            raise ValueError(f"the feature {unknown} is not finite after some of the last {len(rows)} candles")
        scaler = self.config.scalers[self.config.coins[self.config.place(known.symbol)]]
        return torch.from_numpy(((rows - np.array(scaler["mean"])) / np.array(scaler["std"])).astype(np.float32))

    def _candles(
        self, given: Mapping[str, ArrayLike], coin: str | None, context: Mapping[str, Mapping[str, ArrayLike]]
    ) -> Candles:
        """Return valid candles with their context, gaps filled as in training; ValueError if they do not suffice."""
        own, step, needed = self.config.coins[self.config.place(coin)], self.config.timeframe_ms, self.candles_needed
        found = _sound(given, coin or own, self.config)
        if len(found) < needed:
            raise ValueError(f"there are only {len(found)} candles; give {needed} or more")
        if len(breaks := np.flatnonzero(np.diff(found.time) != step)):
            before, after = found.time[breaks[0]], found.time[breaks[0] + 1]
            gap = f"the candle after {before} ms is {after} ms, not {before + step}"
            raise ValueError(f"there is a gap: {gap}; give candles without gaps")
        if lacking := [name for name in self.config.context if name not in context]:
            raise ValueError(f"this model takes the candles of {', '.join(lacking)}, too; give them as context")
        others = {name: _sound(context[name], name, self.config) for name in self.config.context}
        for name, each in others.items():
            absent = np.flatnonzero(~np.isin(found.time, each.time))
            if len(absent) and len(found) - absent[-1] <= needed:
                when = _dated(int(found.time[absent[-1]]))
                raise ValueError(f"{name}, as context, lacks the candle of {when}; {needed} without a gap are needed")
            found = found.rows(slice(int(absent[-1]) + 1 if len(absent) else 0, None))
        return other_candles.beside(found, others) if others else found

    def _check_age(self, newest: int, now: int) -> None:
        step = self.config.timeframe_ms
        # A candle that opens at t is complete at t + step and remains the last complete one until t + 2 steps.
        age = now - newest
        if not step <= age < 2 * step:
            kind = "has not closed yet" if age < step else "is stale"
            way = "give now=newest to predict from it all the same, or candles up to the last closed one"
            said = f"the newest candle, {_dated(newest)}, {kind} at {_dated(now)}"
            raise ValueError(f"{said}; {way}, {_dated(now // step * step - step)}")

    def example(self) -> dict[str, Tensor]:
        """Return keyword arguments of a forward pass, always the same."""
        config, generator = self.config, torch.Generator().manual_seed(0)
        windows = torch.randn(4, config.lookback, len(config.features), generator=generator)
        return {"windows": windows, "coins": torch.arange(4) % len(config.coins)}


def _sound(given: Mapping[str, ArrayLike], coin: str, config: SignalConfig) -> Candles:
    """Return columns as candles, gaps filled; ValueError for missing ones, other lengths or steps, bad prices."""
    if missing := [name for name in COLUMNS if name not in given]:
        raise ValueError(f"the candles lack {', '.join(missing)}; give the columns {', '.join(COLUMNS)}")
    columns = {name: np.asarray(given[name], np.int64 if name == "time" else np.float64) for name in COLUMNS}
    shapes = {name: column.shape for name, column in columns.items()}
    if len(set(shapes.values())) > 1 or columns["time"].ndim != 1:
        raise ValueError(f"the columns must be of one length (given: {shapes})")
    found = Candles(coin, config.timeframe_ms, **columns)
    if len(wrong := np.flatnonzero(np.diff(found.time) <= 0)):
        late = f"the candle of {found.time[wrong[0] + 1]} ms comes after that of {found.time[wrong[0]]} ms"
        raise ValueError(f"{late}; give each once, the oldest first")
    lengths, counts = np.unique(np.diff(found.time), return_counts=True)
    if counts.max(initial=0) > 1 and (usual := lengths[counts.argmax()]) != found.timeframe_ms:
        learnt = f"the model learnt from candles of {found.timeframe_ms / 60_000:g}; give those, or train on these"
        raise ValueError(f"these candles are of {usual / 60_000:g} minutes, {learnt}")
    prices = np.stack([found.open, found.high, found.low, found.close])
    good = np.isfinite(prices).all(0) & np.isfinite(found.volume) & (prices > 0).all(0) & (found.volume >= 0)
    bad = np.flatnonzero(~(good & (found.high == prices.max(0)) & (found.low == prices.min(0))))
    if len(bad):
        possible = "prices must be finite, above 0 and between low and high, and the volume not negative"
        raise ValueError(f"the candle of {found.time[bad[0]]} ms is impossible: {possible}")
    return found.filled(config.fill)


def most_used(models: Sequence[SignalModel]) -> int:
    """Return the largest number of candles that a signal of these models depends on; 0 without a model."""
    return max([0, *(model.candles_used(coin) for model in models for coin in model.config.coins)])


def facts(models: Sequence[SignalModel]) -> dict[str, Plain]:
    """Return the facts about a run's models for its page, with the rules by which that reads tables of candles."""
    config = models[0].config
    return {
        "coins": [coin for model in models for coin in model.config.coins],
        "timeframe_ms": config.timeframe_ms,
        "candles_needed": max(model.candles_needed for model in models),
        "candles_used": most_used(models),
        "horizon": config.about.get("label", {}).get("horizon"),
        "note": config.warning.get("note"),
        "headline": next((model.rule.headline for model in models if model.rule), NEVER),
        "rules": RULES._asdict(),
    }


def signal(probabilities: Sequence[float], threshold: float | None) -> str:
    """Return the likeliest of CLASSES, or with a threshold the likelier side if it reaches it, else NO_TRADE."""
    row = np.array([probabilities])
    return CLASSES[int(row.argmax() if threshold is None else NO_TRADE + signals(row, threshold)[0])]


def _dated(time_ms: int) -> str:
    return f"{minute(time_ms)} UTC ({time_ms} ms)"
