"""Evaluation of the models of all coins on the test part, beside baselines and as a trading strategy.

A coin is judged on the tests of all its folds joined in time; its folds are also traded and shown one by one. Nothing
is chosen on the test: thresholds and recalibration come from the validation part. Evaluating many coins does not make
one of them look skilled by chance: verdicts are corrected for their number (see `judge`), and so are the intervals that
are shown, whose confidence for n coins is 1 - 0.05 / n.
"""

import functools
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from common.disk.prepared import MANIFEST
from common.errors import UserError
from models.market import rule
from models.market.signal_model import SignalModel
from pipelines.distributed import ranks
from pipelines.engine.workload import Evaluation, MapItems
from pipelines.members import processes
from pipelines.workloads.crypto import data
from pipelines.workloads.crypto.config import Config
from pipelines.workloads.crypto.folds import CoinFold, Place, evaluate_fold
from pipelines.workloads.crypto.task import Member, members
from pipelines.workloads.crypto.trading.performance import deflated_sharpe
from pipelines.workloads.crypto.verdict import headline, judge, looks, summary
from pipelines.workloads.crypto.verdict.summary import Page

SPLIT = "test"


def evaluate(
    config: Config, models: Mapping[str, SignalModel], folder: Path, device: torch.device, map_items: MapItems
) -> list[Evaluation]:
    """Evaluate every coin that has a model; members without one are listed with the reason.

    Raises UserError if there is no model at all, or if one was trained on other candles or features than the folder's.
    """
    began = time.perf_counter()
    coins = config.model.coins
    chosen = {name: Member(coins, config.model.fold) for name in models} if coins else members(config, folder)
    facts = json.loads((folder / MANIFEST).read_text())
    failed = facts["failed"]
    missing = {
        name: next((failed[symbol] for symbol in member.symbols if symbol in failed), "no trained model")
        for name, member in chosen.items()
        if name not in models
    }
    if len(missing) == len(chosen):
        shown = "; ".join(f"{name}: {reason}" for name, reason in list(missing.items())[:5])
        raise UserError(f"none of the {len(chosen)} members has a trained model: {shown}{'; ...' * (len(missing) > 5)}")

    wanted: dict[str, list[Place]] = {}
    for name in (name for name in chosen if name in models):
        for number, symbol in enumerate(chosen[name].symbols):
            wanted.setdefault(symbol, []).append(Place(name, models[name], chosen[name].fold, number))
    examine = functools.partial(_examine, config, folder, summary.confidence_of(len(wanted)))
    examined = processes.map_members(examine, {pair[0]: pair for pair in wanted.items()}, device, map_items)
    pages = {symbol: page for symbol, (page, _) in examined.items()}
    folds = {symbol: each for symbol, (_, each) in examined.items()}

    first = {page["candles"]: symbol for symbol, page in reversed(pages.items())}
    originals = {symbol: page for symbol, page in pages.items() if first[page["candles"]] == symbol}
    hashes = {symbol: known["hash"] for symbol, known in facts["coins"].items()}
    seen = ranks.on_main(lambda: looks.look(config, folder, hashes, list(pages.values())))
    reached_by = judge.verdicts(originals, seen.family)
    for symbol in pages.keys() - originals.keys():
        said = f"{judge.COPY} {first[pages[symbol]['candles']]}"
        reached_by[symbol] = judge.Verdict(verdict=said, grades=dict.fromkeys(judge.GRADES, False), reasons=[])
    for symbol, reached in reached_by.items():
        page, traded = pages[symbol], pages[symbol]["backtest"]
        page["verdict"], page["grades"], page["reasons"] = reached["verdict"], reached["grades"], reached["reasons"]
        sharpe, error = traded["sharpe"], traded["sharpe_error"]
        traded["deflated_sharpe"] = None if sharpe is None or not error else deflated_sharpe(sharpe, error, seen.family)
    ranking = sorted(pages.values(), key=summary.evidence)
    absent = [] if coins else [symbol for symbol in (*facts["symbols"], *failed) if symbol not in pages]
    table = [{**summary.table_row(page), "verdict": headline.too_short([page]) + page["verdict"]} for page in ranking]
    table += [{"coin": symbol, "verdict": "not evaluated"} for symbol in absent]
    found = summary.summarise(config, ranking, folds, missing)
    first_line = headline.headline(ranking, config.data.origin == "simulate")
    if coins and len(hashes) > len(pages):
        first_line += f"; {len(pages)} of {len(hashes)} coins prepared together"
    rules = {
        name: _rule(config, models[name], first_line, name, [pages[symbol] for symbol in chosen[name].symbols])
        for name in models
    }
    return [
        Evaluation(
            split=SPLIT,
            summary={"headline": first_line, "looks": seen._asdict(), **found, "seconds": time.perf_counter() - began},
            table=table,
            examples=summary.example_columns(folds),
            files={f"{SPLIT}/{symbol}.json": json.dumps(page, allow_nan=False) for symbol, page in pages.items()},
            beside=next(iter(rules.values())) if coins else {},
        ),
        *(
            # Each member's own page, for its folder, where its export finds it.
            Evaluation(
                split=SPLIT,
                summary=pages[known[0]] if len(known) == 1 else {symbol: pages[symbol] for symbol in known},
                member=name,
                beside=rules[name],
            )
            for name, known in ((name, chosen[name].symbols) for name in models if not coins)
        ),
    ]


def _examine(
    config: Config,
    folder: Path,
    confidence: float,
    job: tuple[str, Sequence[Place]],
    device: torch.device,
    map_items: MapItems,
) -> tuple[Page, list[CoinFold]]:
    """Return a coin's page, without the verdict among all coins, and the results of its folds."""
    symbol, places = job
    coin = data.load(folder, symbol).newest(config.training.window)
    folds = [evaluate_fold(config, coin, place, device, map_items) for place in places]
    return summary.coin_page(config, coin, folds, confidence), folds


def _rule(config: Config, model: SignalModel, first_line: str, member: str, pages: Sequence[Page]) -> dict[str, str]:
    """Return {file name: text} of a model's trading rule, with the verdicts on its coins."""
    coins = {}
    for page in pages:
        fold = next(fold for fold in page["folds"] if fold["member"] == member)
        coins[page["symbol"]] = rule.CoinRule(
            verdict=headline.coin_line(page),
            threshold=fold["threshold"],
            recalibration=fold["recalibration"],
            reason="" if fold["threshold"] else "not trading was best on validation, after all costs",
        )
    paid = config.costs(pages[0]["symbol"])
    costs = {"fee": paid.fee, "funding": paid.funding}
    costs |= {name: getattr(config.evaluation, name) for name in ("slippage", "stop", "target")}
    made = rule.Rule(weights=rule.fingerprint(model), headline=first_line, costs=costs, coins=coins)
    return {rule.RULE: made.model_dump_json(indent=1)}
