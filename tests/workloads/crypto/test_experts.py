"""Pooled experts: each is what it says, they are fitted to the data that they may see, and the pool is no worse."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from accelerate import DistributedType
from accelerate.state import AcceleratorState
from sklearn.ensemble import HistGradientBoostingClassifier

from common.config import build
from common.disk.prepared import MANIFEST
from common.errors import UserError
from models import io
from models.market.pooled_experts import Trees
from pipelines.distributed import deferred
from pipelines.workloads.crypto import Config, data, experts, task, untrained
from pipelines.workloads.crypto.windows import IGNORED
from tests.models.tiny import disturb
from tests.workloads.crypto.standin import CPU, map_items

WORDS = ["data.symbols=[AUSDT,BUSDT]", "data.simulated_candles=2500", "data.lookback=16", "data.signal=1.0"]


def made(folder, *words, symbols=("AUSDT",)):
    config = build(Config, {}, [*WORDS, *words, f"model.coins=[{','.join(symbols)}]"], "")
    folder.mkdir(exist_ok=True)
    if not (folder / MANIFEST).exists():
        (folder / MANIFEST).write_text(json.dumps(data.prepare(config, folder)))
    return task.task(config, folder, CPU)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("experts")


@pytest.fixture(scope="module")
def fitted(folder):
    return made(folder)


@pytest.fixture(scope="module")
def together(folder):
    """The task of both coins, whose network has learnt something."""
    found = made(folder, symbols=("AUSDT", "BUSDT"))
    disturb(found.model.network)
    return found


@pytest.fixture(scope="module")
def base(together, tmp_path_factory):
    """The run of a model of both coins."""
    run = tmp_path_factory.mktemp("shared")
    io.save(together.model, run / "members/all/model/best")
    return run


def log_loss(log_probabilities, labels):
    return float(-log_probabilities[np.arange(len(labels)), labels].mean())


def judged(found):
    """Log probabilities (M, 3, 3) of each expert and labels (M,) on the validation windows."""
    source = found.validation
    (seen,) = experts.over(source, lambda *given: (found.model.experts(*given),))
    return seen.double().numpy(), source.labels[source.labels != IGNORED].numpy()


def test_trees_as_tables_give_what_scikit_learn_gives():
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(1500, 5)).astype(np.float32)
    rows[::7] = rows[::7].round(1)  # equal values, at which nodes split
    labels = 1 + (rows[:, 0] * rows[:, 1] > 0.3).astype(int) - (rows[:, 2] > 0.7)
    boosted = HistGradientBoostingClassifier(max_iter=12, max_leaf_nodes=15, max_depth=6, min_samples_leaf=20)
    boosted.fit(rows, labels)
    trees = Trees(5, 20, 29)
    experts.set_trees(trees, boosted)
    found = trees(torch.from_numpy(rows).view(3, 500, 5)).softmax(-1).view(-1, 3)
    np.testing.assert_allclose(found, boosted.predict_proba(rows), atol=1e-6)
    assert len(np.unique(found.argmax(-1))) == 3


def test_the_linear_expert_and_the_trees_beat_the_prior_before_any_step(fitted):
    seen, labels = judged(fitted)
    trained = fitted.train.labels[fitted.train.labels != IGNORED].numpy()
    prior = -np.log(np.bincount(trained, minlength=3) / len(trained))[labels].mean()
    assert log_loss(seen[:, 0], labels) < prior - 0.004
    assert log_loss(seen[:, 2], labels) <= prior


@pytest.mark.slow
def test_older_lags_of_what_has_no_past_weigh_less(folder):
    """Noise fitted to newer lags is noise as well, but there are far fewer of them."""
    weights = []
    for seed in (1, 2):
        words = ["data.symbols=[AUSDT]", "data.signal=0", f"data.seed={seed}", "data.lookback=40"]
        model = made(folder / str(seed), *words).model
        past, scaled, _ = model.location[:-1].split([40, 40, len(model.config.features)])
        weights.append((past + scaled).square())
    newer, older = (torch.stack(weights)[:, part].mean() for part in (slice(-8, None), slice(0, 24)))
    assert older < newer / 4


@pytest.mark.slow
@pytest.mark.parametrize("words", [["data.label=volatility"], ["data.label=triple_barrier", "data.horizon=8"]])
def test_every_label_and_horizon_can_be_fitted(tmp_path, words):
    found = made(tmp_path, *words)
    seen, labels = judged(found)
    shares = np.bincount(labels, minlength=3) / len(labels)
    assert log_loss(seen[:, 0], labels) < -(shares * np.log(shares)).sum()


def test_the_pool_is_refitted_to_the_weights_and_no_worse_than_its_best_expert(fitted):
    figures = fitted.refit(map_items_of(8))
    assert list(figures) == ["val/weight_linear", "val/weight_network", "val/weight_trees"]
    seen, labels = judged(fitted)
    pooled = torch.from_numpy((seen * fitted.model.weights.double().numpy()[:, None]).sum(1)).log_softmax(-1).numpy()
    alone = [log_loss(seen[:, number], labels) for number in range(3)]
    assert log_loss(pooled, labels) < min(alone) + 1e-3
    again = fitted.model.weights.clone()
    fitted.refit(map_items_of(5))
    torch.testing.assert_close(fitted.model.weights, again)


def leaning(generator, num, noises):
    """Labels of known probabilities, and those of forecasters whose logits err by so much (num, K, 3)."""
    logits = generator.normal(0, 0.5, (num, 3))
    labels = (logits + generator.gumbel(size=(num, 3))).argmax(1)
    erring = logits[:, None] + np.asarray(noises)[:, None] * generator.normal(0, 1, (num, len(noises), 3))
    return torch.from_numpy(erring).log_softmax(-1).numpy(), labels


def lost_to_the_best(generator, num, noises):
    """The log loss of a pool fitted to so many rows above that of its best expert, on many others, in 1e-4 nats."""
    weights = experts.pool_weights(*leaning(generator, num, noises))
    seen, labels = leaning(generator, 20_000, noises)
    pooled = torch.from_numpy(np.einsum("k,mkc->mc", weights, seen)).log_softmax(-1).numpy()
    return 1e4 * (log_loss(pooled, labels) - log_loss(seen[:, np.argmin(noises)], labels))


@pytest.mark.parametrize(
    ("num", "noises", "most"), [(100, (0.0, 0.2, 0.2), 45), (1000, (0.0, 0.2, 0.2), 11), (1000, (0.5, 0.5, 0.5), -500)]
)
def test_a_pool_loses_little_to_an_expert_that_needs_no_other_and_gains_where_they_err_apart(num, noises, most):
    generator = np.random.default_rng(0)
    assert np.mean([lost_to_the_best(generator, num, noises) for _ in range(10)]) < most


def map_items_of(size):
    return lambda source, function: map_items(source, function, size)


def test_what_is_known_beforehand_changes_nothing(fitted):
    batch = fitted.validation.batch(torch.arange(2))
    known = batch["labels"] != IGNORED
    given = fitted.model.eval()(batch["windows"], batch["coins"], batch["fixed"])
    torch.testing.assert_close(given[known], fitted.model(batch["windows"], batch["coins"])[known])


def test_only_the_network_learns(fitted):
    assert all(name.startswith("network.") for name, _ in fitted.model.named_parameters())
    loss = fitted.loss(fitted.model.train(), fitted.train.batch(torch.arange(2)))
    loss.value.backward()
    assert loss.count == int((fitted.train.batch(torch.arange(2))["labels"] != IGNORED).sum())
    assert any(p.grad is not None and p.grad.abs().sum() > 0 for p in fitted.model.parameters())


def test_the_experts_of_several_coins_see_each_in_its_own_units(together):
    assert together.model.drift.shape == (2,)
    assert together.model.spread[0] != together.model.spread[1]
    seen, labels = judged(together)
    shares = np.bincount(labels, minlength=3) / len(labels)
    assert log_loss(seen[:, 0], labels) < -(shares * np.log(shares)).sum()


def test_a_class_that_training_lacks_leaves_the_trees_at_the_shares(fitted, monkeypatch):
    labels = fitted.train.labels.clone()
    labels[labels == 0] = 1
    monkeypatch.setattr(fitted.train, "labels", labels)
    model = untrained.untrained(build(Config, {}, WORDS, ""), fitted.coins, 0)
    experts.fit_trees(model, fitted.train, fitted.validation)
    probabilities = model.trees(torch.zeros(1, model.trees.inputs)).softmax(-1)[0]
    assert 0 < probabilities[0] < 0.01
    assert probabilities.sum() == pytest.approx(1)


@pytest.mark.slow
def test_a_model_goes_on_from_what_its_base_has_learnt(folder, fitted, together, base):
    found = made(folder, f"model.base={base}")
    for name, weights in found.model.network.state_dict().items():
        assert torch.equal(weights, together.model.network.state_dict()[name])
    seen, labels = judged(found)
    alone, _ = judged(fitted)
    (theirs,) = experts.over(found.validation, lambda *given: (together.model.experts(*given),))
    trees = [log_loss(each[:, 2], labels) for each in (seen, alone, theirs.double().numpy())]
    assert trees[0] == pytest.approx(min(trees[1:]), abs=1e-6)
    assert log_loss(seen[:, 0], labels) <= log_loss(alone[:, 0], labels)
    assert found.model.config.about["base_sha256"] == untrained.load_base(config_of(f"model.base={base}"), "all").sha256


def config_of(*words):
    return build(Config, {}, [*WORDS, *words], "")


def test_a_strong_penalty_keeps_the_linear_expert_at_its_base(fitted, together, monkeypatch):
    """Of what a coin does not contradict, the base's weights remain, in units of the inputs as they are."""
    monkeypatch.setattr(experts, "PENALTIES", (1e4,))
    model = untrained.untrained(config_of(), fitted.coins, 0)
    returns = torch.zeros(len(fitted.train.labels))
    experts.fit_linear(model, fitted.train, fitted.validation, returns, together.model)
    near = (model.location - together.model.location)[:-1].abs().max()
    assert near < 1e-2 * together.model.location[:-1].abs().max()


def test_a_base_that_learnt_something_else_or_saw_what_judges_is_refused(fitted, together, tmp_path):
    base, own = together.model.config, untrained.description(config_of(), fitted.coins, 0)
    untrained.check_base(base, own, "shared")
    label = own.about["label"] | {"horizon": 4}
    for changed, message in (
        ({"lookback": 20}, "model.base=shared was trained with another lookback: 16, here 20"),
        ({"about": own.about | {"label": label}}, "was trained with another label"),
        ({"about": own.about | {"windows": earlier(own, "validation")}}, "of the validation part here in its train"),
        ({"about": own.about | {"windows": earlier(own, "test")}}, "of the test part here in its validation part"),
    ):
        with pytest.raises(UserError, match=message):
            untrained.check_base(base, replace(own, **changed), "shared")
    with pytest.raises(UserError, match=r"there is no config.*--name nothing model\.pooled=true"):
        untrained.load_base(config_of(f"model.base={tmp_path}/nothing"), "all")


def earlier(own, part):
    """The windows that a model of one coin knows, if a part began a candle before it may."""
    (coin,) = own.about["windows"]
    parts = own.about["windows"][coin]
    before = parts["train" if part == "validation" else "validation"]["last_ms"]
    first = before + (own.about["label"]["horizon"] + own.lookback - 1) * own.timeframe_ms
    return {coin: parts | {part: parts[part] | {"first_ms": first}}}


@pytest.mark.parametrize("word", ["model.width=8", "model.kind=cnn_lstm"])
def test_a_base_brings_its_kind_and_size(word):
    with pytest.raises(UserError, match=f"leave out {word}"):
        config_of("model.base=runs/crypto/shared", word)


@pytest.mark.slow
@pytest.mark.parametrize("based", [False, True])
def test_where_it_is_split_the_network_has_no_weights_until_then_and_gets_those_of_one_made_whole(
    folder, base, based, monkeypatch
):
    words = [f"model.base={base}"] if based else []
    torch.manual_seed(5)
    whole = made(folder, *words)
    monkeypatch.setitem(AcceleratorState._shared_state, "distributed_type", DistributedType.FSDP)
    torch.manual_seed(5)
    split = made(folder, *words)
    assert all(parameter.is_meta for parameter in split.model.parameters() if parameter.ndim)
    recorder = getattr(split.model, deferred.ATTRIBUTE)
    for name, weight in whole.model.named_parameters():
        if weight.ndim:
            assert torch.equal(recorder.value(recorder.left[name]), weight), name
    for name, buffer in whole.model.named_buffers():
        assert torch.equal(split.model.get_buffer(name), buffer), name
