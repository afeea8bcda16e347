"""The model that ships is fitted again on training and validation together; the test judges the fit that was not."""

import json

import pytest
import torch

from common.disk.files import digests, write_text
from common.disk.prepared import MANIFEST
from models import io
from models.market import rule
from pipelines import workloads
from pipelines.engine import training
from pipelines.run.folder import Run
from pipelines.workloads.crypto import Config, data, experts, task
from pipelines.workloads.crypto.untrained import load_base

SMALL = {"symbols": ("AAAUSDT",), "simulated_candles": 3000, "lookback": 12, "signal": 1.0}
TRAINING = {"steps": 6, "epochs": None, "batch_size": 4, "validation_steps": 2, "checkpoint_steps": 2, "ema": 0.5}
TRAINING |= {"log_steps": 1}


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(experts, "PENALTIES", (0.25, 1e-3))
    monkeypatch.setattr(experts, "ITERATIONS", 4)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    config = Config.model_validate({"data": SMALL, "model": {"coins": ("AAAUSDT",)}, "training": TRAINING})
    (folder / MANIFEST).write_text(json.dumps(data.prepare(config, folder)))
    return folder


def config_of(**words):
    return Config.model_validate(
        {"data": SMALL, "model": {"coins": ("AAAUSDT",)}, "training": TRAINING | {"refit": True} | words}
    )


def trained(config, folder, run, resume=False):
    accelerator = training.make_accelerator(config, run)
    return training.train(workloads.find("crypto"), config, folder, {}, run, accelerator, resume)


def rates_of(run):
    return [record["learning_rate"] for record in run.metrics() if "learning_rate" in record]


def test_what_was_chosen_on_validation_holds_and_its_rows_are_learnt(prepared):
    first = task.task(config_of(), prepared, torch.device("cpu"))
    first.model.weights.copy_(torch.tensor([0.5, 0.2, 0.3]))
    again = task.task(config_of(), prepared, torch.device("cpu"), first)
    known = [{int(row) for row in each.folds[0]["train"]} for each in (*first.coins, *again.coins)]
    validation = {int(row) for row in first.coins[0].folds[0]["validation"]}
    assert known[1] == known[0] | validation
    assert not known[1] & {int(row) for row in first.coins[0].folds[0]["test"]}
    assert again.chosen == first.chosen
    assert again.model.weights.tolist() == first.model.weights.tolist()
    assert again.model.config.scalers == first.model.config.scalers
    assert again.model.config.about["judged"] == rule.fingerprint(first.model)
    assert not torch.equal(again.model.location, first.model.location)
    again.model.trees.value.zero_()
    assert experts.fit_trees(again.model, again.train, again.validation, known=3) == 3
    assert int((again.model.trees.value != 0).any(1).sum()) == 3 * 3


@pytest.mark.slow
def test_the_fit_that_ships_is_put_in_place_after_kills_and_the_judged_one_is_as_without_it(
    prepared, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    plain, whole, killed = (Run("crypto", name) for name in ("plain", "whole", "killed"))
    trained(config_of(refit=False), prepared, plain)
    progress = trained(config_of(), prepared, whole)
    assert not plain.judged.exists()
    assert plain.evaluated == plain.best
    assert digests(whole.judged) == digests(plain.best)
    assert digests(whole.best)["model.safetensors"] != digests(plain.best)["model.safetensors"]
    assert progress.best_step in (2, 4, 6)

    def fails(*_):
        raise KeyboardInterrupt

    for name in ("_ship", "_fit_again"):
        with monkeypatch.context() as patch:
            patch.setattr(training, name, fails)
            with pytest.raises(KeyboardInterrupt):
                trained(config_of(), prepared, killed, resume=killed.started())
        if name == "_ship":
            rates = [rates_of(Run("crypto", "killed", within=within)) for within in ("", "again")]
            assert len(rates[0]) == 6
            assert rates[1] == rates[0][: progress.best_step]
    trained(config_of(), prepared, killed, resume=True)
    assert digests(killed.best.parent) == digests(whole.best.parent)
    assert not (killed.folder / "again").exists()

    # The evaluation of the judged fit is that of the one that ships, also after a further --resume.
    found = rule.CoinRule(verdict="none", threshold=None)
    judged = io.load(whole.judged)
    made = rule.Rule(weights=rule.fingerprint(judged), headline="0 of 1", costs={}, coins={"AAAUSDT": found})
    write_text(whole.best / rule.RULE, made.model_dump_json())
    trained(config_of(), prepared, whole, resume=True)
    ships = io.load(whole.best)
    assert ships.rule == made
    assert "Verdict and figures are those of the fit that had not seen validation" in ships.card["Fit"]
    # What goes on from a base must not see its own validation part.
    base = Config.model_validate({"data": SMALL, "model": {"base": str(whole.folder)}, "training": TRAINING})
    assert rule.fingerprint(load_base(base, "all").model) == made.weights
