"""A workload of your own: the next value of a noisy wave, from the values before it."""

from pydantic import Field

from common.config import Section
from common.packages import lazily
from models import io
from pipelines.engine.config import BaseConfig, DataSection, Training
from pipelines.engine.workload import Metric, Workload

io.FAMILIES["waves"] = f"{__name__}.model"  # so that saved models are loaded


class Data(DataSection):
    """Simulated waves; one example is a window of past values and the value after it."""

    examples: int = Field(2000, ge=10, description="number of windows, of which a fifth are held out")
    window: int = Field(16, ge=2, description="number of past values in a window")
    noise: float = Field(0.1, ge=0, description="standard deviation of the noise on each value")
    seed: int = Field(0, ge=0, description="random seed of the waves")


class Model(Section):
    """Sizes of the network."""

    width: int = Field(32, ge=1, description="units of the hidden layer")


class Config(BaseConfig):
    """Config of the workload."""

    data: Data = Data()
    model: Model = Model()
    training: Training = Training(steps=200, learning_rate=0.01, validation_steps=50, checkpoint_steps=50)


WORKLOAD = Workload(
    config=Config,
    prepare=lazily(f"{__name__}.task:prepare"),
    task=lazily(f"{__name__}.task:WavesTask"),
    evaluate=lazily(f"{__name__}.evaluation:evaluate"),
    report=lazily(f"{__name__}.evaluation:sections"),
    metric=Metric("val/squared_error"),
)
