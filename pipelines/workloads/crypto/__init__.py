"""Per-coin trading signals from candles: SHORT, NO_TRADE or LONG."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from common.config import Section
from common.lazy import lazily
from pipelines.engine.config import BaseConfig, DataSection, Training
from pipelines.engine.workload import Metric, Workload

SIMULATED = ("AAAUSDT", "BBBUSDT", "CCCUSDT", "DDDUSDT", "EEEUSDT", "FFFUSDT", "GGGUSDT", "HHHUSDT")


class Data(DataSection):
    """Candles, their features and labels, and the division of time."""

    source: Literal["simulate", "files", "ccxt"] | None = Field(
        None, description="source of the candles; null: files if data.folder is given, else the simulated market"
    )
    folder: str | None = Field(
        None, description="folder with one file of candles per coin and timeframe, such as BTCUSDT-15m.csv"
    )
    symbols: tuple[str, ...] = Field(SIMULATED, description="names of the coins, such as BTCUSDT or BTC/USDT")
    symbols_file: str | None = Field(
        None, description='JSON file, ["BTCUSDT"] or {"symbols": ["BTCUSDT"]}, used instead of data.symbols'
    )
    timeframe: str = Field("15m", description="length of a candle: 1m, 5m, 15m, 1h, ...")
    days: int = Field(365, ge=1, description="days of history to download; ccxt only")
    minimum_rows: int = Field(500, ge=1, description="smallest number of candles that a coin must have")
    lookback: int = Field(60, ge=4, le=100_000, description="number of candles in a window")
    horizon: int = Field(3, ge=1, description="number of candles that a label looks ahead")
    features: Literal["default", "legacy"] = Field("default", description="set of features")
    label: Literal["fixed", "volatility", "triple_barrier"] = Field(
        "fixed", description="rule by which moves are labelled"
    )
    threshold: float = Field(0.003, gt=0, description="smallest move labelled LONG or SHORT, as a share of the price")
    split: Literal["chronological", "walk_forward"] = Field(
        "chronological", description="division of time into training, validation and test"
    )
    folds: int = Field(5, ge=1, description="number of folds of the walk-forward split")
    simulated_candles: int = Field(35_000, ge=1, description="length of the simulated market, in candles")
    signal: float = Field(0.0, ge=0, le=1, description="predictability of the simulated market, 0 (none) to 1")
    seed: int = Field(0, ge=0, description="random seed of the simulated market")

    def inputs(self) -> Sequence[Path]:
        """Return the files of candles that can be found, and data.symbols_file."""
        from pipelines.workloads.crypto import data

        return data.inputs(self)


class Model(Section):
    """Network of each coin."""

    preset: Literal["legacy", "default"] = Field(
        "default", description="architecture; legacy is a large one, kept for comparison"
    )
    width: int = Field(64, ge=4, description="number of channels and of LSTM units; model.preset=default only")
    dropout: float = Field(
        0.2, ge=0, lt=1, description="share of activations dropped in training; model.preset=default only"
    )
    pooled: bool = Field(
        False, description="train one model for all coins, which is told the coin, instead of one per coin"
    )
    coins: tuple[str, ...] | None = Field(
        None, min_length=1, description="train one model, of these coins; null: the run has one model per coin"
    )
    fold: int = Field(0, ge=0, description="fold of the walk-forward, counted from 0, for the model of model.coins")


class SignalTraining(Training):
    """Classification of windows."""

    class_weights: Literal["balanced", "none"] = Field(
        "balanced", description="weights of the classes in the loss; balanced: inverse to their counts in training"
    )


class EvaluationSettings(Section):
    """Judging and trading of predictions on the test part."""

    fee: float = Field(0.001, ge=0, description="fee per side, as a share of the notional")
    slippage: float = Field(0.0005, ge=0, description="slippage per side, as a share of the price")
    stop: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="move against a trade that closes it, as a share of the entry price; null: no stop",
    )
    target: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="move in favour of a trade that closes it, as a share of the entry price; null: no target",
    )
    repetitions: int = Field(
        1000, ge=100, description="number of resamples of the block bootstrap, and of sets of random trades"
    )
    seed: int = Field(0, ge=0, description="random seed of the bootstrap, the random trades and the baselines")


class Config(BaseConfig):
    """Config of the workload."""

    data: Data = Data()
    model: Model = Model()
    training: SignalTraining = SignalTraining(epochs=20, batch_size=256)
    evaluation: EvaluationSettings = EvaluationSettings()

    @model_validator(mode="after")
    def _labels_earn_their_cost(self) -> "Config":
        from common.errors import UserError
        from pipelines.workloads.crypto.labels import check_threshold

        try:
            check_threshold(self.data.threshold, self.evaluation.fee, self.evaluation.slippage)
        except UserError as error:
            raise ValueError(str(error)) from error
        return self


_package = "pipelines.workloads.crypto"
WORKLOAD = Workload(
    config=Config,
    prepare=lazily(f"{_package}.data:prepare"),
    expand=lazily(f"{_package}.task:expand"),
    task=lazily(f"{_package}.task:SignalTask"),
    evaluate=lazily(f"{_package}.evaluation:evaluate"),
    report=lazily(f"{_package}.report:sections"),
    metric=Metric("val/log_loss"),
)
