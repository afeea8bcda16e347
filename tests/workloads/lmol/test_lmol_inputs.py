"""Answers to images in files, beside those that an evaluation measures."""

import io

import numpy as np
import pytest
import torch
from PIL import Image

from models.images.ranking import SWAPPED
from pipelines.workloads.lmol import data
from pipelines.workloads.lmol.judging.answers import ModelAnswers
from tests.workloads.lmol.brightness import map_items

FEW = 12


def png(image):
    file = io.BytesIO()
    Image.fromarray(image[..., 0]).save(file, "PNG")
    return file.getvalue()


@torch.no_grad()
@pytest.mark.slow
def test_predictions_are_the_answers_and_scores_of_the_evaluation(prepared, whole):
    found, model = data.load(prepared), whole["siamese"].model.eval()
    model.fit_scale(8)
    validation = found.parts["validation"][:50]
    known = torch.from_numpy(found.scores[validation] * found.unit)
    model.rely(model.encode_all(data.Images(found.images, validation)[torch.arange(50)]), known, 8)
    test = found.parts["test"]
    source = data.Images(found.images, test)
    answers = ModelAnswers(model, source, torch.device("cpu"), map_items)
    first, second = found.pairs["test"][:FEW, :2].T
    expected = (answers(first, second) + answers(second, first)[:, SWAPPED]) / 2
    pairs = [
        {"first": png(found.images[one]), "second": png(found.images[other])}
        for one, other in zip(first, second, strict=True)
    ]
    given = [[each for name, each in answer.items() if name != "note"] for answer in model.predict(pairs)]
    np.testing.assert_allclose(given, expected, atol=1e-6)

    placed, errors = answers.scores(test, 8)
    (ranked,) = model.predict([{"images": [png(found.images[row]) for row in test[:FEW]]}], comparisons=8)
    scores = {row["image"]: (row["score"], row["high"] - row["score"]) for row in ranked["ranking"]}
    np.testing.assert_allclose([scores[number][0] for number in range(FEW)], placed[:FEW], atol=1e-4)
    reach = np.array([scores[number][1] for number in range(FEW)])
    assert reach == pytest.approx(1.96 * errors[:FEW], rel=1e-3)
