"""Plots of the page, as SVG."""

from matplotlib.figure import Figure

from pipelines.report.plots import curves, svg


def test_a_figure_is_svg_alone_with_its_text_as_text():
    figure = Figure()
    figure.subplots().set_title("cost by step")
    text = svg(figure)
    assert text.startswith("<svg")
    assert text.rstrip().endswith("</svg>")
    assert ">cost by step</text>" in text


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
