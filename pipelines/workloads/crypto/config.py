"""Config of the workload. Neither torch nor pandas is imported before a value needs it."""

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

from pydantic import Field, field_validator, model_validator

from common.config import Section
from common.disk.files import sha256
from common.errors import UserError
from models.market import candle_tables, other_candles
from pipelines.engine.config import BaseConfig, DataSection, Training

FEES = Path(__file__).with_name("fees.json")
RULES = ("fixed", "volatility", "triple_barrier")  # of labels
SIMULATED = tuple(f"{3 * letter}USDT" for letter in "ABCDEFGH")  # coins


class Data(DataSection):
    """Candles, their features and labels, and the division of time."""

    layout: ClassVar[int] = 2
    renews: ClassVar[bool] = True

    source: Literal["simulate", "files", "ccxt"] | None = Field(
        None, description="source of the candles; null: files if data.folder is given, else the simulated market"
    )
    folder: str | None = Field(None, description="folder of candles: a file per coin and timeframe, as BTCUSDT-15m.csv")
    symbols: tuple[str, ...] | None = Field(
        None, description="coins, as in BTCUSDT or BTC/USDT; null: all that data.folder holds, or eight simulated ones"
    )
    timeframe: str = Field("15m", description="length of a candle: 1m, 5m, 15m, 1h, ...")
    days: int = Field(365, ge=1, description="days of history to download; ccxt only")
    exchange: str = Field("binance", description="exchange, by ccxt's name, for fees and for downloads by ccxt")
    minimum_rows: int = Field(500, ge=1, description="smallest number of candles that a coin must have")
    fill: int = Field(0, ge=0, description="largest gap, in candles, filled at the last close, without volume; 0: none")
    lookback: int = Field(60, ge=4, le=100_000, description="number of candles in a window")
    horizon: int = Field(3, ge=1, description="number of candles that a label looks ahead")
    features: str = Field("default", description="default, or FILE.py:FUNCTION for your own as well; @SHA256 is added")
    context: tuple[str, ...] = Field((), description="coins whose candles are inputs of every coin, as in [BTCUSDT]")
    timeframes: tuple[str, ...] = Field(
        (), description="longer timeframes whose features are inputs, too, as in [1h, 4h], made of the same candles"
    )
    label: str = Field(
        "fixed",
        description="rule by which moves are labelled: fixed, volatility, triple_barrier, or FILE.py:FUNCTION for your "
        "own; @SHA256 of the file is added",
    )
    threshold: float = Field(0.003, gt=0, lt=1, description="smallest move labelled LONG or SHORT; 0.003: 0.3 %")
    split: Literal["chronological", "walk_forward"] = Field(
        "chronological", description="division of time into training, validation and test"
    )
    folds: int = Field(5, ge=1, description="number of folds of the walk-forward split")
    simulated_candles: int = Field(35_000, ge=1, description="length of the simulated market, in candles")
    signal: float = Field(0.0, ge=0, le=1, description="predictability of the simulated market, 0 (none) to 1")
    seed: int = Field(0, ge=0, description="random seed of the simulated market")

    @field_validator("features", "label")
    @classmethod
    def _functions_are_known_by_their_file(cls, word: str) -> str:
        file, _, name = word.rpartition(":")
        return f"{word}@{sha256(Path(file))}" if "@" not in name and Path(file).is_file() else word

    @field_validator("label")
    @classmethod
    def _a_rule_is_known(cls, word: str) -> str:
        if ":" not in word and word not in RULES:
            raise ValueError(f"{word!r} is none of {', '.join(RULES)}, nor FILE.py:FUNCTION")
        return word

    @field_validator("context")
    @classmethod
    def _names_of_coins(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(candle_tables.canonical(name, "data.context") for name in names))

    @model_validator(mode="after")
    def _candles_are_there(self) -> "Data":
        if self.source == "files" and not self.folder:
            raise ValueError("data.source=files needs data.folder, the folder with the files of candles")
        if self.source not in (None, "files") and self.folder:
            raise ValueError(f"data.folder={self.folder} has no effect with data.source={self.source}; leave one out")
        for each in self.timeframes:  # an error unless they are multiples
            other_candles.factor(each, candle_tables.milliseconds(self.timeframe))
        return self

    @property
    def origin(self) -> str:
        """The source of candles: data.source, else files if data.folder is given, else the simulated market."""
        return self.source or ("files" if self.folder else "simulate")

    @property
    def candles_folder(self) -> Path:
        """The folder with the files of candles, where these are the source."""
        assert self.folder is not None
        return Path(self.folder)

    def coins(self) -> list[str]:
        """Return the coins, as BTCUSDT: of data.symbols if it is given, else all there are.

        Raises UserError for an empty list and a coin that is named twice.
        """
        from pipelines.workloads.crypto.candles import files

        if self.symbols is None:
            if self.origin == "ccxt":
                raise UserError("data.source=ccxt needs data.symbols=[BTCUSDT,...]")
            return files.coins(self.candles_folder, self.timeframe) if self.origin == "files" else list(SIMULATED)
        found = [candle_tables.canonical(name) for name in self.symbols]
        if (twice := next((name for name in found if found.count(name) > 1), None)) or not found:
            wrong = f"{twice} twice; once is enough" if twice else "no coin; give BTCUSDT, say"
            raise UserError(f"data.symbols names {wrong}")
        return found

    def inputs(self) -> list[Path]:
        """Return the user's existing files that the data come from, including those of coins that cannot be used."""
        from pipelines.workloads.crypto.candles import files

        paths = list[Path]()
        if self.origin == "files":
            with suppress(UserError):  # reported by `prepare`
                find = files.finder(self.candles_folder)
                for symbol in dict.fromkeys([*self.coins(), *self.context]):
                    with suppress(UserError):
                        paths += find(symbol, self.timeframe)
        return paths


class Model(Section):
    """Network of each coin."""

    kind: Literal["pooled_experts", "cnn_lstm"] = Field(
        "pooled_experts",
        description="pooled_experts: a linear model, a network and boosted trees, pooled; cnn_lstm: a network "
        "over each window",
    )
    preset: Literal["default"] | None = Field(None, description="older key: default is kind cnn_lstm; null: as in kind")
    width: int | None = Field(None, ge=4, description="number of channels; null: 24 of pooled_experts, 64 of cnn_lstm")
    dropout: float = Field(0.2, ge=0, lt=1, description="share of activations dropped in training")
    pooled: bool = Field(False, description="train one model of all coins, with the coin as input, instead of one each")
    coins: tuple[str, ...] | None = Field(
        None, min_length=1, description="train one model, of these coins; null: the run has one model per coin"
    )
    fold: int = Field(0, ge=0, description="fold of the walk-forward, counted from 0, for the model of model.coins")
    base: str | None = Field(
        None,
        description="run of one model for several coins, as in runs/crypto/shared, whose network, linear model and "
        "trees each model starts from; pooled_experts only",
    )

    @model_validator(mode="after")
    def _a_base_has_its_sizes(self) -> "Model":
        if self.base is not None and (self.chosen != "pooled_experts" or self.width is not None):
            wrong = f"model.width={self.width}" if self.width is not None else f"model.kind={self.chosen}"
            raise ValueError(f"model.base={self.base} sets the width and takes pooled_experts only; leave out {wrong}")
        return self

    @property
    def chosen(self) -> str:
        """Kind of the model, by either name."""
        return "cnn_lstm" if self.preset else self.kind


class SignalTraining(Training):
    """Classification of windows. A batch counts windows; that of pooled_experts, stretches of 192 candles."""

    class_weights: Literal["balanced", "none"] | None = Field(
        None,
        description="weights of the classes in the loss; balanced: inverse to their counts in training; null: none for "
        "pooled_experts, else balanced",
    )
    refit: bool = Field(False, description="fit again on training and validation, to use; the first fit is judged")
    window: int | None = Field(None, ge=1, description="newest candles before validation to learn from; null: all")


class EvaluationSettings(Section):
    """Judging and trading of predictions on the test part."""

    fee: float | None = Field(
        None, ge=0, description="fee per side, as a share of the notional; null: that of data.exchange by a dated table"
    )
    slippage: float = Field(0.0005, ge=0, description="slippage per side, as a share of the price")
    funding: float | None = Field(
        None,
        gt=-1,
        lt=1,
        description="what longs pay shorts at 0, 8 and 16 h UTC, as a share of the notional; null: 0 for spot, that of "
        "data.exchange by the table for futures, such as XRPUSDTUSDT",
    )
    stop: float | None = Field(
        None, gt=0, lt=1, description="move against a trade that closes it, as a share of the entry price; null: none"
    )
    target: float | None = Field(
        None, gt=0, lt=1, description="move in favour of a trade that closes it, as a share of its entry; null: none"
    )
    repetitions: int = Field(1000, ge=100, description="number of resamples of the block bootstrap")
    seed: int = Field(0, ge=0, description="random seed of the bootstrap and the baselines")


class Costs(NamedTuple):
    """Costs of trading a coin, as shares of the notional."""

    fee: float  # per side
    funding: float
    said: str  # where they come from


class Config(BaseConfig):
    """Config of the workload."""

    data: Data = Data()
    model: Model = Model()
    training: SignalTraining = SignalTraining(epochs=20, batch_size=6, learning_rate=3e-3)
    evaluation: EvaluationSettings = EvaluationSettings()

    @property
    def stacks(self) -> bool:
        """True if several models of the kind can be computed as one; those with a library's LSTM cannot."""
        return self.model.chosen == "pooled_experts"

    def content(self, manifest: Mapping[str, Any]) -> object:
        """Return the hash of each coin's candles, and the times at which they are cut into parts."""
        coins = manifest["coins"]
        return {
            name: [coins[name][key] for key in ("hash", "cuts")] for name in self.model.coins or () if name in coins
        }

    def costs(self, coin: str = "") -> Costs:
        """Return the costs of trading a coin: as given, else by the table. Raises UserError for an unknown exchange."""
        rules = candle_tables.RULES
        of_futures = (*(2 * quote for quote in rules.quotes), *rules.contracts)  # as in XRPUSDTUSDT and BTCUSDTPERP
        table, given, exchange = json.loads(FEES.read_text()), self.evaluation, self.data.exchange
        known = table["exchanges"].get(exchange, {})
        kind = "futures" if coin.endswith(of_futures) or (known and "spot" not in known) else "spot"
        fee = known.get(kind) if given.fee is None else given.fee
        funding = (known.get("funding") if kind == "futures" else 0.0) if given.funding is None else given.funding
        if fee is None or funding is None:
            there = ", ".join(name for name, each in table["exchanges"].items() if kind in each)
            unknown = f"data.exchange={exchange}: its fees of {kind} are not known, only those of {there}"
            raise UserError(f"{unknown}; give evaluation.fee and evaluation.funding")
        of = f"{kind} of {exchange} on {table['date']}" if given.fee is None else "as given"
        said = f"fee {100 * fee:g} % a side ({of}), slippage {100 * given.slippage:g} %"
        return Costs(fee, funding, said + (f", funding {100 * funding:g} % in 8 h" if funding else ""))

    @model_validator(mode="after")
    def _labels_earn_their_cost(self) -> "Config":
        threshold, fee, slippage = self.data.threshold, self.costs().fee, self.evaluation.slippage
        cost = 2 * (fee + slippage)
        if threshold < cost * (1 - 1e-9):
            below = f"is below the cost of a trade, 2 x (fee {fee:g} + slippage {slippage:g}) = {cost:g}"
            why = f"a trade on a correct label could lose money; give data.threshold={cost:g} or more"
            raise ValueError(f"data.threshold={threshold:g} {below}: {why}")
        return self
