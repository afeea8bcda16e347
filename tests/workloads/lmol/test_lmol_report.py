"""The page of an evaluated run: pictures and plots inside it, and no markup from the data."""

import base64
import io
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from common import statistics
from pipelines.engine.config import BaseConfig, Training
from pipelines.report import page as engine_report
from pipelines.report import verdict as verdicts
from pipelines.run.folder import Run
from pipelines.workloads.lmol import data, evaluation, pairs, report
from tests.report.pages import checked
from tests.workloads.lmol.brightness import CONFIG, Brightness, comparisons, map_items


def page(folder, model, found):
    """The run in which an evaluation was kept, its sections by heading, and its page."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data, "load", lambda *_: found)
        patch.setattr(statistics, "RESAMPLES", 50)
        result = evaluation.evaluate(
            CONFIG, "default", model.fitted_to(found), Path("unread"), torch.device("cpu"), map_items
        )
        patch.chdir(folder)
        run = Run("lmol", "default")
        run.evaluations = folder / "evaluations"  # found from other folders too
        kept = engine_report.keep(run, [result])
        sections = report.sections(CONFIG, {"default": model}, kept, run)
        run.begin(BaseConfig(training=Training(steps=1)), 1, {})
        engine_report.write(run, kept, sections)
        return run, dict(sections), run.report.read_text()


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    found = comparisons(families=("blur", "noise"))
    return page(tmp_path_factory.mktemp("page"), Brightness(error=0.8), found)


def test_the_page_shows_images_by_score_and_mistakes_as_pairs(shown):
    _, parts, _ = shown
    verdict, *others = parts
    costs = r"(At \S+ ms for two new images against \S+, w|W)"
    assert re.fullmatch(rf"{costs}orse than the strongest alternative: [\w -]+, which would serve better", verdict)
    assert others == [
        "Scores against the known ones",
        "Answers: confidence and accuracy",
        "Accuracy by family",
        "The surest mistakes",
    ]
    strip = next(iter(parts.values()))
    scores = [float(value) for value in re.findall(r"<b>(-?[\d.e+-]+)</b> ±", strip)]
    assert len(scores) == evaluation.STRIP
    assert scores == sorted(scores, reverse=True)
    mistakes = parts["The surest mistakes"]
    assert mistakes.count("<img") == 2 * mistakes.count("labelled")
    sure = [float(value) for value in re.findall(r"\(([\d.]+) %\)", mistakes)]
    assert sure == sorted(sure, reverse=True)
    assert len(set(sure)) > 1
    assert all(said != label for said, label in re.findall(r"answered <b>(\w+) .*?labelled <b>(\w+)</b>", mistakes))


@pytest.mark.parametrize(
    ("own", "rival", "gain", "verdict"),
    [
        (1.0, 0.75, 2.0, "At 1 ms for two new images against 0.75, better than the strongest alternative: SVM"),
        (1.0, 1.3, 2.0, "At 1 ms for two new images against 1.3, better than the strongest alternative: SVM"),
        (1.0, 1.2, 2.0, "Better than the strongest alternative: SVM"),
        (1.0, None, 2.0, "Better than the strongest alternative: SVM"),
        (1.0, 1.0, 0.5, "No clear difference from the strongest alternative: SVM, which may serve as well"),
        (1.0, 1.0, -2.0, "Worse than the strongest alternative: SVM, which would serve better"),
    ],
)
def test_a_verdict_says_first_what_unequal_answers_cost_and_then_what_it_means(own, rival, gain, verdict):
    rows = {"predictor": "siamese", "ms a pair": own}, {"predictor": "SVM", "ms a pair": rival}
    assert report.heading(verdicts.Comparison(*rows, gain, [gain - 1, gain + 1])) == verdict


@pytest.mark.parametrize(
    ("images", "labels", "said"),
    [
        (8, [0, 1, 2] * 5, "Too few images for a verdict: 8 are for testing; give some 66 in all"),
        (8, [1] * 5, "Too few different scores for a verdict: all 5 test pairs have the same answer"),
    ],
)
def test_a_verdict_compares_nothing_where_images_are_too_few(shown, images, labels, said):
    rows = {"predictor": "siamese", "ms a pair": 1.5}, {"predictor": "SVM", "ms a pair": 0.9}
    few = pairs.too_few(images, np.array(labels), 3)
    assert report.heading(verdicts.Comparison(*rows, -2.0, [-3.0, -1.0]), few) == said
    run, parts, _ = shown
    (test,) = engine_report.kept(run.evaluations)
    doubted = replace(test, summary={**test.summary, "few": few})
    compared = "than the strongest alternative"
    (first, verdict), *_ = report.sections(CONFIG, {}, [doubted], run)
    assert first == said
    assert 'class="answer even"' in verdict
    assert compared not in verdict
    assert compared in next(iter(parts.values()))


def test_pictures_are_the_images_themselves_within_the_page(shown):
    _, parts, _ = shown
    sources = re.findall(r'src="([^"]*)"', "".join(parts.values()))
    found = comparisons()
    originals = {image.tobytes() for image in found.images[found.parts["test"]][..., 0]}
    assert len(sources) > evaluation.STRIP
    for source in sources:
        kind, _, code = source.partition(",")
        assert kind == "data:image/png;base64"
        assert np.asarray(Image.open(io.BytesIO(base64.b64decode(code)))).tobytes() in originals


def test_the_page_is_well_formed_and_names_of_images_are_no_markup(shown):
    pictures = checked(shown[2]).all("img")
    assert any(attributes["title"].startswith("<image ") for attributes in pictures)
    assert all(attributes["title"] in attributes["alt"] for attributes in pictures)


def test_mistakes_do_not_take_names_of_images_for_markup(shown):
    _, parts, _ = shown
    assert "<image " not in parts["The surest mistakes"]
    assert "&lt;image " in parts["The surest mistakes"]


def test_files_beside_the_evaluation_are_complete(shown):
    run, _, _ = shown
    names = {path.name for path in run.evaluations.iterdir()}
    assert names == {"test.json", "test.csv", "test.scores.csv", "test.details.jsonl"}
    summary = json.loads((run.evaluations / "test.json").read_text())
    assert {"accuracy", "swap_consistency", "pearson", "n", "seconds", "table"} <= set(summary)


def test_a_model_without_mistakes_and_families_needs_no_section_for_them_and_colours_stay(tmp_path):
    found = comparisons()
    colour = replace(found, images=found.images + np.array([246, 0, 10], dtype=np.uint8))  # 246 is ten less
    _, parts, _ = page(tmp_path, Brightness(), colour)
    assert "The surest mistakes" not in parts
    assert "Accuracy by family" not in parts
    source = re.search(r'base64,([^"]*)"', next(iter(parts.values())))[1]
    assert Image.open(io.BytesIO(base64.b64decode(source))).mode == "RGB"
