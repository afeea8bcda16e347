"""Windows gathered on the device, many coins as one table, and a weighted loss whose probabilities are true."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from common.config import build
from common.disk.prepared import MANIFEST
from common.errors import UserError
from pipelines.workloads.crypto import Config, data, task, windows

CPU = torch.device("cpu")
COINS = ("AUSDT", "BUSDT")


def of_member(config, folder, name):
    return task.task(task.expand(config, folder)[name], folder, CPU)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """(config, folder) of two simulated coins in three folds of a walk-forward."""
    folder = tmp_path_factory.mktemp("data")
    words = [f"data.symbols=[{','.join(COINS)}]", "data.simulated_candles=9000", "data.lookback=12"]
    words += ["data.split=walk_forward", "data.folds=3", "training.steps=1", "training.epochs=null"]
    config = build(Config, {}, [*words, "model.kind=cnn_lstm"], "")
    facts = data.prepare(config, folder)
    (folder / MANIFEST).write_text(json.dumps(facts))
    return config, folder


def changed(config, *words):
    return build(Config, config.model_dump(mode="json"), words, "")


def test_windows_are_the_rows_up_to_their_end(prepared):
    _config, folder = prepared
    coin = data.load(folder, "AUSDT")
    source = windows.pooled([coin], 1, "test", first=4)
    ends, scaled = coin.folds[1]["test"], coin.scaled(1)
    batch = source.batch(torch.tensor([0, 5, source.size - 1]))
    for place, item in enumerate((0, 5, -1)):
        np.testing.assert_array_equal(batch["windows"][place], scaled[ends[item] - 11 : ends[item] + 1])
        assert batch["labels"][place, 0] == coin.labels[ends[item]]
    assert batch["coins"].tolist() == [4, 4, 4]


def test_windows_live_on_the_device_as_one_table_not_copied_60_times(prepared):
    _config, folder = prepared
    coin = data.load(folder, "AUSDT")
    source = windows.pooled([coin], 0, "train")
    held = sum(value.nbytes for value in vars(source).values() if isinstance(value, torch.Tensor))
    assert source.table.nbytes == coin.features.size * 4
    assert held == source.table.nbytes + 8 * (len(coin.labels) + 2 * source.size + coin.lookback + 1)


def test_coins_of_a_pooled_model_keep_their_own_rows_and_scalers(prepared):
    _config, folder = prepared
    coins = [data.load(folder, symbol) for symbol in COINS]
    together = windows.pooled(coins, 2, "train")
    apart = [windows.pooled([coin], 2, "train", first=number) for number, coin in enumerate(coins)]
    assert together.size == sum(source.size for source in apart)
    for number, source in enumerate(apart):
        item = 7
        batch = together.batch(torch.tensor([item + number * apart[0].size]))
        alone = source.batch(torch.tensor([item]))
        for name in ("windows", "labels", "coins"):
            assert torch.equal(batch[name], alone[name])


def test_members_are_coins_by_folds(prepared):
    config, folder = prepared
    found = task.members(config, folder)
    assert list(found) == [f"{symbol}-{fold}" for symbol in COINS for fold in (1, 2, 3)]
    assert found["BUSDT-3"] == task.Member(("BUSDT",), 2)
    assert list(task.members(changed(config, "model.pooled=true"), folder)) == ["all-1", "all-2", "all-3"]


def test_class_weights_come_from_training_counts(prepared):
    config, folder = prepared
    made = of_member(config, folder, "AUSDT-2")
    coin = data.load(folder, "AUSDT")
    counts = np.bincount(coin.labels[coin.folds[1]["train"]], minlength=3)
    np.testing.assert_allclose(made.class_weights, counts.sum() / (3 * counts), rtol=1e-6)
    unweighted = of_member(changed(config, "training.class_weights=none"), folder, "AUSDT-2")
    assert unweighted.class_weights.tolist() == [1, 1, 1]


def test_weights_are_taken_out_of_the_probabilities(prepared):
    """A model that knows no window must end at the classes' shares, however the loss weighs them."""
    config, folder = prepared
    made = of_member(config, folder, "AUSDT-1")
    batch = made.train.batch(torch.arange(made.train.size))
    logits = torch.zeros(3, requires_grad=True)
    optimizer = torch.optim.LBFGS([logits], max_iter=100)

    def step():
        optimizer.zero_grad()
        loss = made.loss(lambda windows, coins: logits.expand(len(windows), 1, 3), batch)
        value = loss.value / loss.count
        value.backward()
        return value

    optimizer.step(step)
    shares = torch.bincount(batch["labels"][:, 0], minlength=3) / made.train.size
    assert shares.max() > 0.5  # far from equal
    torch.testing.assert_close(logits.detach().softmax(-1), shares, atol=1e-4, rtol=0)


def test_score_is_the_log_loss_without_weights(prepared):
    config, folder = prepared
    made = of_member(config, folder, "AUSDT-1")
    batch = made.validation.batch(torch.arange(50))
    found = made.score(made.model.eval(), batch)
    probabilities = made.model(batch["windows"], batch["coins"])[:, 0].softmax(-1)
    expected = -probabilities[torch.arange(50), batch["labels"][:, 0]].log()
    torch.testing.assert_close(found["log_loss"], expected)
    assert found["count"].tolist() == [1] * 50


def test_the_model_knows_what_its_use_needs(prepared):
    config, folder = prepared
    coin = data.load(folder, "BUSDT")
    known = of_member(config, folder, "BUSDT-3").model.config
    assert known.features == coin.names
    assert known.coins == ("BUSDT",)
    assert known.scalers["BUSDT"]["mean"] == coin.scalers[2].mean.tolist()
    assert known.timeframe_ms == 15 * 60_000
    assert known.about["label"] == {"rule": "fixed", "horizon": 3, "threshold": 0.003}
    assert known.about["data_sha256"] == {"BUSDT": coin.candles.digest()}
    assert known.about["longest_still"] == {"BUSDT": 0}
    test = known.about["windows"]["BUSDT"]["test"]
    assert test["first_ms"] == coin.candles.time[coin.folds[2]["test"][0]]


def test_a_coin_that_could_not_be_prepared_says_why(prepared, tmp_path):
    config, folder = prepared
    facts = json.loads((folder / MANIFEST).read_text())
    (tmp_path / MANIFEST).write_text(json.dumps({**facts, "failed": {"CUSDT": "CUSDT: 30 candles are too few"}}))
    asked = changed(config, "data.symbols=[AUSDT,CUSDT]")
    assert "CUSDT-1" in task.members(asked, tmp_path)
    with pytest.raises(UserError, match="30 candles are too few"):
        of_member(asked, tmp_path, "CUSDT-1")


def test_stretches_cover_every_window_once_and_cross_no_coin(prepared):
    _config, folder = prepared
    coins = [data.load(folder, symbol) for symbol in COINS]
    single, source = (windows.pooled(coins, 0, "train", stretch) for stretch in (1, 50))
    batch = source.batch(torch.arange(source.size))
    known = batch["labels"] != windows.IGNORED
    assert known.sum() == single.size
    assert torch.equal(batch["labels"][known], single.batch(torch.arange(single.size))["labels"][:, 0])
    seen = batch["windows"].unfold(1, coins[0].lookback, 1).transpose(2, 3)[known]
    assert torch.equal(seen, single.batch(torch.arange(single.size))["windows"])
    owner = batch["coins"][:, None].expand_as(known)[known]
    assert torch.equal(owner, single.coins)


def test_older_names_of_kinds_are_understood(prepared):
    config, _ = prepared
    kinds = {
        words: changed(config, "model.kind=pooled_experts", *words.split()).model.chosen
        for words in ("model.preset=default", "model.preset=null")
    }
    assert list(kinds.values()) == ["cnn_lstm", "pooled_experts"]


def test_a_model_of_several_coins_needs_them_cut_at_the_same_times(prepared, monkeypatch):
    config, folder = prepared
    load = data.load

    def grown(folder, symbol):
        coin = load(folder, symbol)
        return replace(coin, facts={**coin.facts, "cuts": [symbol]})

    monkeypatch.setattr(data, "load", grown)
    with pytest.raises(UserError, match=r"AUSDT, BUSDT: .* some files have grown since .* delete that folder"):
        of_member(changed(config, "model.pooled=true"), folder, "all-1")
    assert of_member(config, folder, "AUSDT-1").train.size


def test_with_a_window_a_task_learns_from_the_newest_candles(prepared):
    config, folder = prepared
    whole, newest = (of_member(each, folder, "AUSDT-3") for each in (config, changed(config, "training.window=500")))
    rows = whole.train.starts
    assert torch.equal(newest.train.starts, rows[rows > rows[-1] - 500])
    assert torch.equal(newest.validation.starts, whole.validation.starts)
