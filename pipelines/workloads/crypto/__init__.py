"""Per-coin signals from candles: SHORT, NO_TRADE or LONG."""

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
    """Which candles, what is known of them, and what is asked."""

    source: Literal["simulate", "files", "ccxt"] | None = Field(
        None, description="where candles come from; null: files if data.folder is given, else the simulated market"
    )
    folder: str | None = Field(None, description="files of candles, one per coin and timeframe: BTCUSDT-15m.csv, say")
    symbols: tuple[str, ...] = Field(SIMULATED, description="the coins")
    symbols_file: str | None = Field(None, description='JSON, ["BTCUSDT"] or {"symbols": ["BTCUSDT"]}; before symbols')
    timeframe: str = Field("15m", description="from one candle to the next: 1m, 5m, 15m, 1h, ...")
    days: int = Field(365, ge=1, description="how far back to download; ccxt only")
    minimum_rows: int = Field(500, ge=1, description="candles that a coin must have")
    lookback: int = Field(60, ge=4, description="candles of a window")
    horizon: int = Field(3, ge=1, description="candles that a label looks ahead")
    features: Literal["default", "legacy"] = Field("default", description="the named set of features")
    label: Literal["fixed", "volatility", "triple_barrier"] = Field("fixed", description="how moves are labelled")
    threshold: float = Field(0.003, gt=0, description="least move that is a LONG or SHORT, as a share of the price")
    split: Literal["chronological", "walk_forward"] = Field("chronological", description="how time is divided")
    folds: int = Field(5, ge=1, description="of the walk-forward")
    simulated_candles: int = Field(35_000, ge=1, description="length of the simulated market")
    signal: float = Field(0.0, ge=0, le=1, description="how much the simulated past says about the future; 0: nothing")
    seed: int = Field(0, ge=0, description="seed of the simulated market")

    def inputs(self) -> Sequence[Path]:
        """The files of the candles that can be found, and data.symbols_file."""
        from pipelines.workloads.crypto import data

        return data.inputs(self)


class Model(Section):
    """The network of each coin."""

    preset: Literal["legacy", "default"] = Field("default", description="legacy: the large one it is compared with")
    width: int = Field(64, ge=4, description="channels and LSTM units of default")
    dropout: float = Field(0.2, ge=0, lt=1, description="share of activations dropped in training, of default")
    pooled: bool = Field(False, description="one model of all coins, told which, instead of one for each")
    coins: tuple[str, ...] | None = Field(
        None, min_length=1, description="train one model, of these coins; null: the run has a model for each coin"
    )
    fold: int = Field(0, ge=0, description="fold of the walk-forward, counted from 0, that the model of coins learns")


class SignalTraining(Training):
    """Classification of windows."""

    class_weights: Literal["balanced", "none"] = Field(
        "balanced", description="whether rare classes weigh more in the loss, by their counts in training"
    )


class EvaluationSettings(Section):
    """How predictions are judged and traded on the test part."""

    fee: float = Field(0.001, ge=0, description="of the notional, per side")
    slippage: float = Field(0.0005, ge=0, description="of the price, per side")
    stop: float | None = Field(None, gt=0, lt=1, description="move against a trade that ends it; null: none")
    target: float | None = Field(None, gt=0, lt=1, description="move with a trade that ends it; null: none")
    repetitions: int = Field(1000, ge=100, description="of the block bootstrap and of random trades")
    seed: int = Field(0, ge=0, description="of both")


class Config(BaseConfig):
    """The workload's whole config."""

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
