"""hardware.compile: models in training hold in few graphs, and compute what they compute without."""

import pytest
import torch
from torch import nn

from common import noise
from models.images.comparator.config import ComparatorConfig
from models.images.comparator.siamese import Siamese, TowerSiamese
from models.market.cnn_lstm import CNNLSTM, CNNLSTMConfig
from models.plans.char_lstm import PRESETS, CharLSTM
from models.plans.lstm_network import CharLSTMConfig
from models.routing import native
from models.routing.config import RoutingConfig
from models.routing.environment import Instances
from models.routing.policy import RoutingPolicy
from models.stories.config import TinyTransformerConfig
from models.stories.tiny_transformer import TinyTransformer
from tests.models.images.comparator.small import SMALL

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning"),  # torch's own
    # torch's own, of what it hands from one graph to the next
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning"),
]
CPU = torch.device("cpu")


class Dropping(TowerSiamese):
    """TowerSiamese over encodings that were made before, without its tower."""

    def __init__(self, config):
        encoder = nn.Sequential(nn.LayerNorm(12), nn.Dropout(0.3), nn.Linear(12, config.width), nn.ReLU())
        Siamese.__init__(self, config, encoder=encoder)


def stories():
    return TinyTransformer(TinyTransformerConfig(32, 16, 2, 2, 32, 16)), (torch.randint(0, 32, (4, 16)),)


def bep():
    config = CharLSTMConfig(vocabulary="abcdefgh", **{**PRESETS["default"], "width": 16})
    return CharLSTM(config), (torch.randint(0, 8, (4, 6)),)


def crypto():
    return CNNLSTM(CNNLSTMConfig("default", features=("a", "b"), lookback=12)), (torch.randn(4, 12, 2),)


def siamese():
    config = ComparatorConfig(**SMALL)
    return Dropping(config), (None, torch.tensor([0, 1]), torch.tensor([2, 3]), torch.randn(4, 12), torch.arange(5, 9))


def cvrp():
    """A policy of the most elaborate kind, which scores tours by torch. What is compiled is its decoder."""
    torch.manual_seed(0)
    policy = RoutingPolicy(RoutingConfig(kind="dgt", width=16, heads=2, layers=1))
    instances = Instances(torch.rand(4, 7, 2), torch.tensor([0.0, *[3.0] * 6]).repeat(4, 1), torch.full((4,), 6.0))
    return policy, (instances, 1, None, torch.tensor([1, 2, 0, 3, 4, 0, 5, 6]).repeat(4, 2, 1))


MADE = (stories, siamese, bep, crypto, cvrp)


@pytest.mark.parametrize(
    ("make", "backend"),
    [
        *((make, "aot_eager") for make in MADE),
        (crypto, "inductor"),
        *(pytest.param(make, "inductor", marks=pytest.mark.exhaustive) for make in MADE if make is not crypto),
    ],
    ids=lambda each: getattr(each, "__name__", each),
)
def test_a_compiled_model_computes_the_same_gradient_in_one_graph(make, backend, monkeypatch):
    torch.manual_seed(0)
    model, inputs = make()
    model.train()

    def gradient(step=0):
        model.zero_grad()
        noise.begin(0, step, torch.arange(4), CPU)
        found = model(*inputs)
        found = {bep: lambda: found[0], cvrp: lambda: found.log_prob}.get(make, lambda: found)()
        found.square().sum().backward()
        noise.end()
        return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])

    monkeypatch.setattr(noise, "_num_keys", 0)  # put back afterwards
    monkeypatch.setattr(native, "scores", lambda *_: False)  # native code is not compiled
    noise.by_item(model)
    by_generator = gradient()
    noise.by_item(model, compiled=True)
    expected, other = gradient(), gradient(step=1)
    assert torch.equal(by_generator, expected)  # the same noise
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    try:
        model.compile(backend=backend)
        found = [gradient(), gradient(step=1), gradient()]
    finally:
        torch._dynamo.reset()
        torch._dynamo.config.allow_rnn = False
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    assert not torch._dynamo.utils.counters["graph_break"]
    for got, want in zip(found, (expected, other, expected), strict=True):
        assert (got - want).norm() <= 1e-5 * want.norm()
