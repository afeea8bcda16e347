"""Plots of the page, as SVG."""

import pytest
from matplotlib.figure import Figure

from pipelines.report.plots import curves, svg


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
    for title in ("loss", "grad norm", "learning rate", "examples per s"):
        assert f">{title}</text>" in text
    assert ">train/loss</text>" in text
    assert ">val/loss</text>" in text
    assert ">train/grad_norm</text>" not in text  # nothing but null was logged: an empty panel, no legend
