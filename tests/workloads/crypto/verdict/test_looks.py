"""Every look at a test counts: together, alone, and with other settings."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.special import softmax

sys.path.insert(0, str(Path(__file__).resolve().parents[4]))
from pipelines.workloads.crypto.config import Config
from pipelines.workloads.crypto.verdict import looks
from pipelines.workloads.crypto.verdict.classification import class_shares
from pipelines.workloads.crypto.verdict.judge import LEVEL, SKILL, judge, verdicts
from pipelines.workloads.crypto.verdict.looks import look
from pipelines.workloads.crypto.verdict.significance import holm

COINS = {f"C{number}USDT": f"hash {number}" for number in range(33)}


def pages(names, begin=1000, end=2000):
    return [{"symbol": name, "folds": [{"member": name, "from_ms": begin, "to_ms": end}]} for name in names]


def test_looks_of_one_time_add_up_and_a_later_test_is_a_new_one(tmp_path):
    folder, config = tmp_path / "data", Config()
    costs = config.model_copy(update={"evaluation": config.evaluation.model_copy(update={"fee": 0.0005})})
    assert look(config, folder, COINS, pages(COINS)) == (1, 33)
    assert look(config, folder, COINS, pages(["C7USDT"])) == (2, 33), "the same forecasts again"
    assert look(costs, folder, COINS, pages(["C7USDT"])) == (3, 66), "a member keeps its family"
    assert look(config, folder, {"D": "hash D"}, pages(["D"], 2000, 2500)) == (4, 67)
    assert look(config, folder, COINS, pages(COINS, 2501, 3000)) == (1, 33), "new candles"
    simulated = config.model_copy(update={"data": config.data.model_copy(update={"source": "ccxt"})})
    assert look(simulated, folder, COINS, pages(COINS)) == (1, 33), "another market"
    ledger = tmp_path / looks.LEDGER
    first, *_, last = map(json.loads, ledger.read_text().splitlines())
    assert (first["looked_at"], last["market"]) == (list(COINS), "ccxt")
    ledger.write_text(ledger.read_text() + '{"torn": ')
    assert look(config, folder, COINS, pages(COINS)) == (5, 67)


def test_holm_counts_forecasts_that_were_tested_before():
    assert holm([0.001, 0.02], 40) == pytest.approx([0.04, 0.78])
    assert holm([0.001, 0.02], 1) == pytest.approx(holm([0.001, 0.02]))


def with_skill(settings, coins, count=3000, seed=0):
    """How many looks find a coin with skill, where forecasts lean at random: together, alone, with other settings."""
    family, found = 0, [0, 0, 0]
    for setting in range(settings):
        judged = {}
        for coin in range(coins):
            generator = np.random.default_rng([seed, setting, coin])
            moves = np.random.default_rng([seed, coin]).normal(size=count)
            labels = np.digitize(moves, [-0.5, 0.5])
            leans = 0.1 * generator.normal(size=(count, 3))
            prior = class_shares(labels)
            guess = {"guess": np.tile(prior, (count, 1))}
            given = softmax(np.log(prior) + leans, axis=1), labels, prior, guess, moves, np.ones(100)
            judged[f"{coin}"] = judge(*given, horizon=1, later=moves, last=np.zeros(len(moves)), resamples=100)
        family += coins
        kinds = [verdicts(judged, family)] if setting else [verdicts(judged)]
        alone = {name: verdicts({name: each}, coins)[name] for name, each in judged.items()}
        for place, reached in ((2 if setting else 0, kinds[0]), (1, {} if setting else alone)):
            found[place] += sum(each["verdict"].startswith(SKILL) for each in reached.values())
    return found


@pytest.mark.slow
def test_noise_shows_no_skill_however_often_it_is_looked_at():
    assert with_skill(settings=4, coins=8) == [0, 0, 0]


if __name__ == "__main__":
    for seed in map(int, sys.argv[1:] or ["0"]):
        found = with_skill(40, 33, seed=seed)
        print(f"seed {seed}: coins with skill at {LEVEL}: together, alone, with other settings: {found}", flush=True)
