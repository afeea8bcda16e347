"""Pictures that matplotlib draws: routes while a policy learns, a coin's account, images in their order."""

import base64
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
from matplotlib.axes import Axes
from matplotlib.dates import ConciseDateFormatter
from matplotlib.figure import Figure
from PIL import Image

from common.foreign_text import from_csv
from common.statistics import Z95
from models import io as models
from models.routing.problems import cost_of
from pipelines.workloads.cvrp.instances.generated import standard_test_set
from pipelines.workloads.cvrp.solvers.heuristics import savings
from pipelines.workloads.cvrp.solvers.reference import hgs
from tests.pictures.page import standing_alone

STAGES = (10, 50, 300)  # updates after which tours are shown
MEASURED = (10, 20, 30, 50, 70, 100, 150, 200, 250, 300)  # and those after which all instances are solved
INSTANCES, SHOWN = 30, 3  # of the standard test set: how many are solved, and the number of the one that is drawn
IMAGES = 12
THINNED = 8  # of the candles, one in so many is drawn


def routes(run: Path) -> str:
    """Draw one instance's tours after some updates of the policy, and the mean cost over all updates."""
    problems = standard_test_set(20, INSTANCES)
    model = models.load(run / "model/best")
    found = {}  # updates -> routes of every problem
    for step in MEASURED:
        model.load_state_dict(safetensors.torch.load_file(run / f"checkpoints/step-{step:06d}/model.safetensors"))
        found[step] = [
            model.solve(each.locs, each.demand, each.capacity, decode="greedy", augment=False)[0] for each in problems
        ]
    rivals = {"savings": [savings(each) for each in problems], "HGS": [hgs(each) for each in problems]}
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    panels = figure.subplot_mosaic([[*map(str, STAGES), "best"], ["curve"] * 4], height_ratios=[2.2, 1.3])
    for step in STAGES:
        _tours(panels[str(step)], problems[SHOWN], found[step][SHOWN], f"after {step} updates")
    best = rivals["HGS"][SHOWN]
    _tours(panels["best"], problems[SHOWN], best, "HGS")

    def mean(solved: Sequence[Any]) -> float:
        return float(np.mean([cost_of(*pair) for pair in zip(problems, solved, strict=True)]))

    axis = panels["curve"]
    costs = [mean(found[step]) for step in MEASURED]
    axis.plot(MEASURED, costs, "o-", markersize=3, linewidth=1.5, label="policy, no search")
    told = {"policy": (costs[-1], 10)}  # its place is so many points above the line, the reference's below
    told |= {name: (mean(solved), 3 if name == "savings" else -11) for name, solved in rivals.items()}
    for number, (name, (cost, above)) in enumerate(told.items()):
        if name in rivals:
            axis.axhline(cost, color=f"C{number}", linewidth=1.2, linestyle="--")
        where = {"xytext": (0, above), "textcoords": "offset points", "ha": "right"}
        axis.annotate(f"{name} {cost:.2f}", (STAGES[-1], cost), color=f"C{number}", fontsize=9, **where)
    axis.set_ylim(min(cost for cost, _ in told.values()) - 0.9)  # room for the lowest line's name
    axis.set_xlabel("updates of the policy", fontsize=9)
    axis.set_ylabel(f"mean tour length,\n{INSTANCES} unseen instances", fontsize=9)
    _plain(axis)
    label = (
        f"Tours through 20 customers after {', '.join(map(str, STAGES))} updates of the policy and by HGS; below, "
        f"the mean length over {INSTANCES} instances falls from {costs[0]:.2f} to {costs[-1]:.2f}, where savings needs "
        f"{mean(rivals['savings']):.2f}"
    )
    return standing_alone(figure, label)


def _tours(axis: Axes, problem: Any, solved: Sequence[Sequence[int]], title: str) -> None:
    for route in solved:
        path = problem.locs[[0, *route, 0]]
        axis.plot(*path.T, "-o", linewidth=1.3, markersize=3.5)
    axis.plot(*problem.locs[0], "s", color="black", markersize=7)
    axis.set_title(f"{title}: {cost_of(problem, solved):.2f}", fontsize=10)
    axis.set_aspect("equal")
    axis.set_xticks([])
    axis.set_yticks([])
    axis.spines[:].set_color("#cccccc")


def coin(run: Path) -> str:
    """Draw a coin's price, the model's leaning at each candle, and its account once costs are paid."""
    (path,) = run.glob("evaluations/test/*.json")
    page = json.loads(path.read_text())
    rows = from_csv((run / "evaluations/test.csv").read_text())
    leaning = np.array([float(row["LONG"]) - float(row["SHORT"]) for row in rows])
    figure = Figure(figsize=(9, 4.6), layout="constrained")
    price, lean, account = figure.subplots(3, sharex=True, height_ratios=[1, 1, 1.5])
    times = _times(page["equity"]["time_ms"])
    candles = _times([int(row["time_ms"]) for row in rows])[::THINNED]
    price.plot(times, page["equity"]["buy_and_hold"], color="C7", linewidth=1.2)
    price.set_ylabel("price, multiples\nof its start", fontsize=9)
    for name, colour, sign in (("leans to LONG", "C2", 1), ("leans to SHORT", "C3", -1)):
        part = np.where(sign * leaning > 0, leaning, 0)
        lean.fill_between(candles, part[::THINNED], color=colour, linewidth=0)
        lean.annotate(name, (0.005, 0.5 + 0.36 * sign), xycoords="axes fraction", fontsize=9, color=colour, va="center")
    lean.set_ylabel("P(LONG) - P(SHORT)", fontsize=9)
    traded = page["backtest"]
    for key, label, number in (
        ("model", "the model's trades, fees and slippage paid", 0),
        ("buy_and_hold", "buy-and-hold", 7),
    ):
        account.plot(times, page["equity"][key], color=f"C{number}", linewidth=1.5, label=label)
    account.set_yscale("log", base=2)
    account.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    account.set_ylabel("account, multiples\nof its start", fontsize=9)
    account.legend(fontsize=9, frameon=False, loc="upper left")
    account.xaxis.set_major_formatter(ConciseDateFormatter(account.xaxis.get_major_locator()))
    for axis in (price, lean, account):
        axis.margins(x=0)
        _plain(axis)
    label = (
        f"{page['symbol']} on the test of a simulated market: its price, what the model leans to at each candle, and "
        f"the account after {traded['num_trades']} trades: {1 + traded['net_return']:.2f} times its start with costs "
        f"paid, where buy-and-hold has {1 + traded['buy_and_hold_return']:.2f}"
    )
    return standing_alone(figure, label)


def _times(milliseconds: Sequence[int]) -> np.ndarray:
    return np.array(milliseconds).astype("datetime64[ms]")


def images(run: Path) -> str:
    """Draw test images at their scores, with the intervals of those."""
    strip = json.loads((run / "evaluations/test.details.jsonl").read_text())["strip"]
    chosen = [strip[i] for i in np.linspace(0, len(strip) - 1, IMAGES).round().astype(int)][::-1]
    figure = Figure(figsize=(9, 3.1), layout="constrained")
    axes = figure.subplot_mosaic([[f"image {i}" for i in range(IMAGES)], ["scores"] * IMAGES], height_ratios=[1, 2.4])
    for i, each in enumerate(chosen):
        axis = axes[f"image {i}"]
        axis.imshow(Image.open(io.BytesIO(base64.b64decode(each["png"]))), cmap="gray")
        axis.set_xticks([])
        axis.set_yticks([])
    axis = axes["scores"]
    scores, errors, known = (np.array([each[key] for each in chosen]) for key in ("score", "standard_error", "known"))
    places = np.arange(IMAGES)
    axis.errorbar(places, scores, Z95 * errors, fmt="o", markersize=5, capsize=3, label="score from comparisons, 95 %")
    axis.plot(places, known, "x", color="C1", markersize=8, label="what the digit is")
    axis.set_xlim(-0.5, IMAGES - 0.5)
    axis.set_xticks([])
    axis.set_ylabel("score", fontsize=9)
    axis.legend(fontsize=9, loc="upper left", frameon=False)
    _plain(axis)
    told = ", ".join(f"{score:.1f} for a {digit:g}" for score, digit in zip(scores, known, strict=True))
    return standing_alone(figure, f"Handwritten digits in the order of their scores, with 95 % intervals: {told}")


def _plain(axis: Axes) -> None:
    axis.tick_params(labelsize=9)
    axis.spines[["right", "top"]].set_visible(False)
    axis.grid(axis="y", alpha=0.5)
