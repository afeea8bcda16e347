"""Plots of the page, as SVG."""

import math
import re

import numpy as np
import pytest
from matplotlib.figure import Figure

from pipelines.report.plots import PANEL, comparison, curves, panel, svg, thinned
from tests.report.pages import Page


def test_a_figure_is_svg_alone_with_its_text_as_text():
    figure = Figure()
    figure.subplots().set_title("cost by step")
    text = svg(figure)
    assert text.startswith("<svg")
    assert text.rstrip().endswith("</svg>")
    assert ">cost by step</text>" in text


@pytest.mark.parametrize("name", ["a$\\frac$", "$x$", "\\$5 or 6$", "50 % of_it^2", "中文"])
def test_names_are_drawn_as_they_are(name):
    figure = Figure(layout="constrained")
    axis = figure.subplots()
    axis.plot([0, 1], label=f"legend {name}")
    axis.set_title(f"title {name}")
    axis.set_xticks([0, 1], [f"tick {name}", "b"])
    axis.legend()
    text = svg(figure)
    for place in ("title", "tick", "legend"):
        assert f">{place} {name}</text>" in text


def test_names_that_have_no_utf_8_or_are_markup_do_not_spoil_a_plot():
    figure = Figure(layout="constrained")
    figure.subplots().set_title("b\udcff </svg><script>\x1b\nsecond line")
    text = svg(figure)
    assert ">b\\udcff &lt;/svg&gt;&lt;script&gt;\\x1b</text>" in text
    assert ">second line</text>" in text


def test_powers_of_ten_are_still_set_as_powers():
    figure = Figure()
    axis = figure.subplots()
    axis.plot([1, 1000], [1, 2])
    axis.set_xscale("log")
    text = svg(figure)
    assert text.count("mathdefault") == text.count("<!-- $\\mathdefault{") > 0


def test_each_logged_name_has_a_panel_and_training_and_validation_share_it():
    text = curves(
        [
            {"step": 1, "train/loss": 2.0, "learning_rate": 0.1, "examples_per_s": 10.0},
            {"step": 2, "train/loss": 1.0, "train/grad_norm": None, "val/loss": 1.5},
            {"step": 3, "val/loss": 1.25},
        ]
    )
    page = Page(text)
    assert len(page.all("svg")) == 4
    for axis in ("loss", "grad norm", "learning rate", "examples/s"):
        assert f">{axis}</text>" in text
    assert text.count(">step (updates of the model)</text>") == 4
    assert ">train/loss</text>" in text
    assert ">val/loss</text>" in text
    assert ">train/grad_norm</text>" not in text  # nothing but null was logged: an empty panel, no legend
    assert page.all("svg")[0]["aria-label"] == (
        "loss over step (updates of the model); train/loss from 2 to 1; val/loss from 1.5 to 1.25"
    )


def test_the_values_of_labelled_lines_are_in_the_plot_one_for_each_place_drawn():
    figure = Figure()
    axis = figure.subplots()
    axis.plot(range(300), [*range(299), math.nan], label='a < "b"')
    axis.plot([0, 300], [1, 1])
    times = np.array(["2024-01-01T00:00", "2024-01-02T06:30"], "datetime64[ms]")
    figure.add_axes((0, 0, 1, 1)).plot(times, [1, 2], "o-", label="account")
    text = svg(figure)
    numbers, dates = [attributes for _, attributes, _ in Page(text).elements if "data-x" in attributes]
    assert numbers["data-name"] == 'a < "b"'
    assert numbers["data-x"].split("\n") == numbers["data-y"].split("\n") == [str(i) for i in range(299)]
    assert dates["data-x"] == "2024-01-01T00:00\n2024-01-02T06:30"
    places = re.search(r'data-name="a &lt;.*?<path d="([^"]*)"', text, re.DOTALL)[1]
    assert len(re.findall(r"[ML] ", places)) == 299


def test_ids_differ_between_plots_and_refer_to_their_own():
    figures = []
    for end in (1, 2):
        figures.append(Figure())
        figures[-1].subplots().plot([0, end], "o-", label="same")
    page = Page(svg(figures[0]) + svg(figures[1]))
    ids = [attributes["id"] for _, attributes, _ in page.elements if "id" in attributes]
    used = [attributes["xlink:href"] for attributes in page.all("use")]
    assert len(set(ids)) == len(ids) > 2
    assert {use.removeprefix("#") for use in used} <= set(ids)


def test_a_plot_takes_the_colours_of_the_page():
    figure = Figure()
    axis = figure.subplots()
    axis.plot([0, 1])
    axis.plot([1, 0], color="#123456")
    text = svg(figure)
    assert "var(--c0)" in text
    assert "var(--ink)" in text
    assert "var(--paper)" in text
    assert set(re.findall(r"#[0-9a-f]{6}\b", text)) == {"#123456"}
    assert "font-family" not in text


def test_the_text_of_a_plot_is_not_taken_for_markup_of_matplotlib():
    figure = Figure()
    figure.subplots().set_title(' id="x" #000000 url(#y) d="1.23456"')
    assert '> id="x" #000000 url(#y) d="1.23456"</text>' in svg(figure)


def test_a_long_curve_keeps_its_ends_and_its_extremes():
    points = np.column_stack([np.arange(10_000), np.random.default_rng(0).normal(size=10_000)])
    kept = thinned(points, 100)
    assert len(kept) <= 102
    assert (np.diff(kept[:, 0]) > 0).all()
    for row in (points[0], points[-1], points[points[:, 1].argmin()], points[points[:, 1].argmax()]):
        assert row.tolist() in kept.tolist()
    assert len(thinned(points[:50], 100)) == 50


def test_a_comparison_names_each_row_with_its_figure():
    rows = [
        {"predictor": "model", "bits": 2.5, "95 %": [2, 3]},
        {"predictor": "n-gram <5>", "bits": 2.25},
        {"predictor": "?"},
    ]
    text = comparison(rows, rows[:1], "bits", "95 %", "lower is better")
    assert ">model: 2.5</text>" in text
    assert ">n-gram &lt;5&gt;: 2.25</text>" in text
    assert Page(text).all("svg")[0]["aria-label"] == "bits, lower is better: model 2.5; n-gram <5> 2.25"


def test_a_picture_is_as_large_as_what_is_drawn_unless_it_is_not_trimmed():
    def width(figure, **options):
        return float(re.search(r'viewBox="0 0 ([\d.]+) ', svg(figure, **options))[1]) / 72

    figure, axis = panel("x", "y")
    assert PANEL[0] - 0.5 < width(figure) < PANEL[0]
    axis.text(1.5, 0.5, "far out", transform=axis.transAxes)
    assert width(figure) > 1.3 * PANEL[0]
    assert width(figure, trimmed=False) == pytest.approx(PANEL[0])
    arranged = Figure(figsize=PANEL, layout="constrained")  # it makes room before it is measured
    arranged.subplots().set_ylabel("\n".join(["a", "label", "of", "many", "lines"]))
    assert width(arranged) == pytest.approx(PANEL[0], abs=0.15)
