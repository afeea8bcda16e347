"""Page of a run: all coins in order of evidence with their pictures, and reasons for those that are missing."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from markupsafe import Markup

from common.disk.files import write_json
from pipelines.members import processes
from pipelines.report import markup, plots
from pipelines.report import page as report
from pipelines.run.folder import Run
from pipelines.workloads.crypto import report as coin_report
from pipelines.workloads.crypto.evaluation import evaluate
from pipelines.workloads.crypto.report import DRAWN, sections
from pipelines.workloads.crypto.verdict import looks
from pipelines.workloads.crypto.verdict.headline import coin_line, headline, net_return_interval
from pipelines.workloads.crypto.verdict.summary import evidence
from tests.report.pages import checked
from tests.workloads.crypto.standin import CPU, fitted, map_items, prepared, without_trees


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """An evaluated run of two coins, and a third coin without a model."""
    folder = tmp_path_factory.mktemp("reported")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield evaluated_run(folder)


def evaluated_run(folder):
    config = prepared(folder / "data", symbols=("AAAUSDT", "BBBUSDT", "CCCUSDT"), simulated_candles=2500)
    models = fitted(config, folder / "data")
    del models["CCCUSDT"]
    run = Run("crypto", "default")
    run.begin(config, 1, {})
    for entry in ({"step": 1, "train/loss": 1.1}, {"step": 2, "train/loss": 1.0, "val/log_loss": 1.2}):
        run.member("AAAUSDT").folder.mkdir(parents=True, exist_ok=True)
        run.member("AAAUSDT").record(entry)
    with without_trees():
        evaluation, *_ = evaluate(config, models, folder / "data", CPU, map_items)
    kept = report.keep(run, [evaluation])
    write_json(run.member("CCCUSDT").outcome_file, {"state": "failed", "reason": "loss is <nan> at step 7"})
    return config, models, kept, run


@pytest.fixture(scope="module")
def shown(run):
    return sections(*run)


def told(run, gains, **changes):
    """Return heading and text of the verdict on copies of a coin with other gains on the strongest simple model.

    Nothing is drawn: `shown` has the pictures, and they take most of the time.
    """
    config, models, kept, old = run
    page = json.loads(kept[0].files["test/AAAUSDT.json"]) | changes
    names = [f"A{number}USDT" for number in range(len(gains))]
    files = {}
    for name, gain in zip(names, gains, strict=True):
        rows = [row | gain if row["rival"] else row for row in page["comparisons"]]
        files[f"test/{name}.json"] = json.dumps({**page, "symbol": name, "comparisons": rows})
    table = [{**kept[0].table[0], "coin": name} for name in names]
    summary = {**kept[0].summary, **dict.fromkeys(names, kept[0].summary["AAAUSDT"])}
    summary["headline"] = headline([json.loads(text) for text in files.values()], simulated=True)
    evaluation = replace(kept[0], table=table, summary=summary, files=files)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(coin_report, "svg", lambda *_, **__: Markup())
        (heading, html), _ = sections(config, models, [evaluation], old)
    return heading, " ".join(html.split())


def longer(run):
    """Return the account of the coin told about as if its test had ten times the days."""
    curves = json.loads(run[2][0].files["test/AAAUSDT.json"])["equity"]
    begin, *_ = curves["time_ms"]
    return {**curves, "time_ms": [begin + 10 * (time - begin) for time in curves["time_ms"]]}


def gain(value, low, high):
    return {"gain": value, "low": low, "high": high}


def test_the_page_ranks_all_coins_and_shows_each_with_its_pictures(run, shown):
    (_, verdict), (_, coins) = shown
    order = [row["coin"] for row in json.loads((run[3].evaluations / "test.json").read_text())["table"]]
    assert order[-1] == "CCCUSDT"
    places = [coins.index(f"<b>{symbol}: ") for symbol in order[:-1]]
    assert places == sorted(places)
    assert coins.count("<details>") == 2
    assert coins.count("<svg") == 6
    for text in (
        "confusion matrix",
        "calibration, error",
        "other fees per side, with the same trades, of AAAUSDT",
        "drawdown of the model",
        "buy-and-hold",
        "AAAUSDT val/log_loss",
        "logistic regression",
    ):
        assert text in coins
    assert "The candles are simulated" in verdict


def test_coins_stand_by_the_least_that_they_surely_gained_and_suspected_leaks_last():
    def page(gained, low, verdict="any"):
        return {"verdict": verdict, "comparisons": [gain(gained, low, 1.0), gain(0.5, -gained, 1.0)]}

    order = [page(0.2, 0.1), page(0.3, -0.1), page(0.4, None), page(0.1, None), page(0.9, 0.8, "leak suspected")]
    assert sorted(np.roll(order, 2), key=evidence) == order


def test_accuracy_is_shown_beside_the_majority(run, shown):
    summary = json.loads((run[3].evaluations / "test.json").read_text())
    coins = " ".join(shown[1][1].split())
    for row in summary["table"][:2]:
        accuracy, majority = (markup.shown(row[name]) for name in ("accuracy", "majority"))
        assert f"accuracy {accuracy}, always the majority class {majority}" in coins


def test_the_reason_why_a_member_was_not_trained_is_shown(shown):
    assert "loss is &lt;nan&gt; at step 7" in shown[0][1]


def test_the_verdict_counts_coins_that_lose_to_a_simple_model(run):
    gains = [gain(-0.02, -0.03, -0.01), gain(0.03, 0.01, 0.05), gain(0.001, -0.01, 0.02), gain(0.1, None, None)]
    _, text = told(run, gains)
    assert "the log loss is better on 1, worse on 1 (A0USDT), and not clearly different on 2 (A2USDT, A3USDT)" in text
    assert "The gains run from -0.0200 [-0.0300, -0.0100] (A0USDT) to 0.1000 (A3USDT) nats" in text
    assert 'class="answer even"' in text


@pytest.mark.parametrize(
    ("pays", "predictive", "heading"),
    [
        (True, True, "2 of 2 simulated coins pay their costs"),
        (False, True, "0 of 2 simulated coins pay their costs; 2 predictable, not tradable"),
        (False, False, "0 of 2 simulated coins pay their costs"),
    ],
)
def test_the_heading_counts_coins_by_what_their_grades_are_worth(run, pays, predictive, heading):
    grades = {"predictive": predictive, "beyond simple models": False, "pays its costs": pays}
    found, text = told(run, [gain(0.02, -0.01, 0.03)] * 2, grades=grades, verdict="any", equity=longer(run))
    assert found.startswith(f"{heading}: net return ")
    assert re.search(r" trades, break-even fee -?\d\.\d+ % a side, buy-and-hold .* %, \d+ days$", found)
    assert re.search(r"the price went its way in [\d.]+ % of [\d,]+ moves", text.partition("<details>")[0])
    assert "By likelihood" in text.partition("<summary>statistics</summary>")[2]


def test_a_test_too_short_for_a_verdict_is_called_so_wherever_the_verdict_is_said(run, shown):
    """Its few trades are neither given an interval nor a break-even fee."""
    heading, _ = told(run, [gain(0.02, -0.01, 0.03)] * 2)
    trades = r"too short for a verdict \(\d+ days, \d+ trades\): "
    money = r"net return [-+][\d.]+ %, buy-and-hold [-+][\d.]+ %, \d+ days"
    assert re.fullmatch(rf"{trades}0 of 2 simulated coins pay their costs: {money}", heading)
    assert re.search(rf"<b>AAAUSDT: {trades}no skill shown: {money}</b>", shown[1][1])
    table = json.loads((run[3].evaluations / "test.json").read_text())["table"]
    assert re.fullmatch(rf"{trades}no skill shown", next(row for row in table if row["coin"] == "AAAUSDT")["verdict"])


@pytest.mark.parametrize(
    ("trades", "few"), [(1, "too few trades for a verdict (36 days, 1 trade): "), (0, ""), (9, "too few"), (10, "")]
)
def test_few_trades_support_no_verdict_however_many_days_they_took(run, trades, few):
    page = json.loads(run[2][0].files["test/AAAUSDT.json"]) | {"equity": longer(run)}
    page["backtest"] |= {"num_trades": trades, "days": 36}
    found = coin_line(page)
    assert found.startswith(f"AAAUSDT: {few}")
    assert ("too few" in found, "break-even" in found) == (bool(few), trades == 10)
    for grade in ("pays its costs", "predictive"):  # by tests of their own
        assert "too few" not in coin_line({**page, "grades": {**page["grades"], grade: True}})
    assert coin_line({**page, "verdict": "leak suspected"}).startswith("AAAUSDT: leak suspected: ")


def account(model, candles, begin=0):
    """A page of an account over so many candles, from a day on."""
    times = 86_400_000 * begin + np.linspace(0, 900_000 * candles, len(model))
    return {"equity": {"time_ms": times.tolist(), "model": list(model)}, "timeframe": "15m", "horizon": 3}


@pytest.mark.parametrize("candles", [640, 2600, 35_000])
def test_the_interval_of_an_account_that_grows_evenly_is_its_return(candles):
    """Blocks are drawn whole, and the last of them may reach beyond the length of the test."""
    assert net_return_interval([account(np.geomspace(1, 8, 400), candles)]) == pytest.approx([7, 7], abs=0.2)


def test_the_interval_of_an_account_that_only_fell_holds_no_gain():
    low, high = net_return_interval([account(np.where(np.arange(400) < 200, 1.0, 0.7), 35_000)])
    assert low < -0.6
    assert high == pytest.approx(0)


def test_the_interval_of_several_accounts_covers_the_longest_of_their_tests():
    pages = [account(np.geomspace(1, 8, 400), 9600), account(np.ones(400), 480, begin=98)]
    assert net_return_interval(pages) == pytest.approx([3.5, 3.5], abs=0.4)
    assert net_return_interval([pages[1]]) is None


@pytest.mark.parametrize("begin", [-3000, -10, 110])
def test_the_interval_of_several_accounts_holds_what_ended_coins_lost_whenever_that_was(begin):
    """Time between their tests counts for nothing."""
    pages = [account(np.ones(400), 9600), account(np.geomspace(1, 0.5, 400), 960, begin)]
    low, high = net_return_interval(pages)
    assert low < -0.25 < high < 0


def test_a_suspected_leak_stands_above_all(run):
    heading, text = told(run, [gain(0.9, 0.8, 1.0)] * 2, verdict="leak suspected", equity=longer(run))
    assert heading.startswith("0 of 2 simulated coins pay their costs; a leak is suspected on 2: ")
    assert "A leak is suspected on 2 (A0USDT, A1USDT), whose figures are worth nothing." in text
    assert 'class="answer worse"' in text


def test_the_whole_page_is_written_from_the_runs_files(run, shown):
    report.write(run[3], run[2], shown)
    headings = checked(run[3].report.read_text()).headings()
    assert "their costs" in headings[0]
    assert headings[1:] == ["Coin by coin", "Evaluation: test", "How it was made", "Configuration"]


@pytest.mark.parametrize("end", [1.0003, 40_000.0])
def test_the_margins_of_a_coins_pictures_hold_all_their_text(run, end):
    """They are not trimmed, for which each would have to be drawn twice."""
    page = json.loads(run[2][0].files["test/AAAUSDT.json"])
    page["equity"]["model"] = np.geomspace(1, end, len(page["equity"]["model"])).tolist()
    logged = {fold["member"]: run[3].member(fold["member"]).metrics() for fold in page["folds"]}
    for draw in DRAWN:
        figure = draw(page, logged)
        text, whole = figure.get_tightbbox(), figure.bbox_inches
        assert whole.x0 <= text.x0 < text.x1 <= whole.x1
        assert whole.y0 <= text.y0 < text.y1 <= whole.y1


@pytest.mark.slow
def test_two_processes_find_what_one_does(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = prepared(tmp_path / "data", symbols=("AAAUSDT", "BBBUSDT", "CCCUSDT"), simulated_candles=1500)
    models, run = fitted(config, tmp_path / "data"), Run("crypto", "default")
    run.begin(config, 1, {})
    run.member("BBBUSDT").folder.mkdir(parents=True)
    run.member("BBBUSDT").record({"step": 1, "train/loss": 1.1})
    outcomes = []
    for cores in (1, 2):
        monkeypatch.setattr(processes, "cores", lambda cores=cores: cores)
        (tmp_path / looks.LEDGER).unlink(missing_ok=True)  # or the second look would be counted
        evaluation, *_ = evaluate(config, models, tmp_path / "data", CPU, map_items)
        shown = replace(evaluation, summary={**evaluation.summary, "seconds": 0})
        with plots.collected() as pictures:
            drawn = [
                (heading, re.sub(r"plot\d+-", "plot", html)) for heading, html in sections(config, {}, [shown], run)
            ]
        outcomes.append((shown, drawn, {label: picture.tolist() for label, picture in pictures.items()}))
    assert outcomes[0] == outcomes[1]
    assert [html.count("<svg") for _, html in drawn] == [1, 9]
    assert len(pictures) == 10
