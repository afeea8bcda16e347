"""The interface of comparators: encoding once, saving, ranking, the description."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch
from PIL import Image

from models import io
from models.images import ranking
from models.images.comparator.config import ComparatorConfig
from models.images.comparator.interface import pixels
from models.images.comparator.siamese import Siamese
from models.images.ranking import FIRST, SECOND, SIMILAR, SWAPPED
from tests.models.images.comparator.small import SMALL, make, pictures, some_pairs


@pytest.mark.parametrize("kind", ["siamese", "scorer"])
def test_encoding_each_image_once_gives_what_encoding_it_for_every_pair_gives(kind):
    model, images = make(kind), pictures(9)
    first, second = some_pairs(50, 9)
    once = model(images, first, second)
    each = model(torch.cat([images[first], images[second]]), torch.arange(50), torch.arange(50, 100))
    torch.testing.assert_close(once, each, rtol=1e-5, atol=1e-5)
    kept = model(None, first, second, encoded=model.encode_all(images))
    torch.testing.assert_close(once, kept, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["siamese", "scorer"])
def test_pixels_are_bytes_or_shares(kind):
    model, images = make(kind), pictures(4)
    first, second = some_pairs(6, 4)
    torch.testing.assert_close(model(images, first, second), model(images / 255, first, second))


def test_references_are_encoded_once_until_the_model_changes():
    model, count = make(references=5), [0]
    model.reference_images.copy_(pictures(5))
    encode = model.encode

    def counted(images):
        count[0] += 1
        return encode(images)

    model.encode = counted
    assert torch.equal(model.encoded_references(), model.encoded_references())
    assert count == [1]
    changes = [
        lambda: model.reference_images.copy_(pictures(6)[1:]),
        lambda: (next(model.parameters()).data.mul_(1.5), model.train().eval()),  # which no version tells of
        lambda: model.load_state_dict(make(references=5).state_dict()),
        lambda: torch.nn.init.constant_(next(model.parameters()), 0.1),
    ]
    for number, change in enumerate(changes):
        change()
        assert torch.equal(model.encoded_references(), encode(model.reference_images))
        assert count == [number + 2]


@pytest.mark.parametrize("kind", ["siamese", "scorer"])
def test_a_saved_comparator_answers_the_same(kind, tmp_path):
    model = make(kind, attribute="ripeness", theta=2, unit=0.25, references=5)
    model.reference_images.copy_(pictures(5))
    model.reference_scores.copy_(torch.arange(5))
    io.save(model, tmp_path)
    again = io.load(tmp_path)
    assert again.config == model.config
    assert torch.equal(again(**again.example()), model(**model.example()))
    assert torch.equal(again.reference_images, model.reference_images)
    assert torch.equal(again.reference_scores, model.reference_scores)


@pytest.mark.parametrize("kind", ["siamese", "scorer"])
def test_compare_gives_probabilities_that_do_not_depend_on_the_order(kind):
    model = make(kind)
    a, b = pictures(2)
    found, swapped = model.compare(a, b), model.compare(b, a)
    assert found.sum().item() == pytest.approx(1, abs=1e-6)
    torch.testing.assert_close(found, swapped[list(SWAPPED)], rtol=1e-5, atol=1e-6)


def test_the_description_says_what_answers_mean_and_the_fit_by_which_scores_are_made(tmp_path):
    model = make(theta=2, unit=0.5, attribute="ripeness", references=12)
    model.reference_images.copy_(pictures(12))
    model.reference_scores.copy_(torch.arange(12))
    assert model.describe()["bradley_terry_with_ties"] is None
    model.fit_scale()
    assert model.save_beside(tmp_path) == ["comparator.json"]
    found = json.loads((tmp_path / "comparator.json").read_text())
    assert found["answers"] == ["First", "Second", "Similar"]
    assert (found["theta"], found["unit"]) == (1.0, 0.5)
    assert found["references"] == [k / 2 for k in range(12)]
    # At the maximum the derivative vanishes, so the expected number of ties equals the number among the answers.
    first, second = torch.triu_indices(12, 12, 1)
    with torch.no_grad():
        answers = model.both_orders(model.encode(model.reference_images), first, second).double()
    fitted = found["bradley_terry_with_ties"]
    fit = ranking.Davidson(fitted["discrimination"], fitted["tie"])
    expected = fit.probabilities((first - second).double() / 2)
    assert float((expected - answers)[:, SIMILAR].sum()) == pytest.approx(0, abs=0.01)
    # A kept fit gives the same scores as fitting again.
    scores, errors = model.score(pictures(3))
    model.fitted.zero_()
    again = model.score(pictures(3))
    torch.testing.assert_close((scores, errors), again)


class Brightness(Siamese):
    """Comparator that compares by mean brightness, without training."""

    def encode(self, images):
        return pixels(images).mean((1, 2, 3))[:, None]

    def compare_encoded(self, encoded, first, second):
        difference = 40 * (encoded[first] - encoded[second])[:, 0]
        return torch.stack([difference, -difference, torch.ones_like(difference)], -1)


def brightness():
    model = Brightness(ComparatorConfig(**SMALL, references=11, unit=0.5))
    levels = torch.arange(11) * 25
    model.reference_images.copy_(levels.to(torch.uint8)[:, None, None, None].expand(-1, 1, 16, 16))
    model.reference_scores.copy_(torch.arange(11))
    return model


def test_ranking_places_images_between_the_references():
    model = brightness()
    images = torch.tensor([30, 200, 110]).to(torch.uint8)[:, None, None, None].expand(-1, 1, 16, 16)
    scores, errors = model.score(images)
    torch.testing.assert_close(scores.float(), torch.tensor([0.6, 4.0, 2.2]), atol=0.1, rtol=0)
    assert (errors > 0).all()


def test_a_folder_is_ranked_with_intervals(tmp_path):
    for name, level in (("dark", 30), ("light", 200), ("middle", 110)):
        Image.new("RGB", (40, 30), (level, level, level)).save(tmp_path / f"{name}.png")
    (tmp_path / "notes.txt").write_text("no image")
    model = brightness()
    found = model.rank(tmp_path)["ranking"]
    assert [Path(row["image"]).name for row in found] == ["light.png", "middle.png", "dark.png"]
    assert [row["score"] for row in found] == pytest.approx([4.0, 2.2, 0.6], abs=0.1)
    assert all(row["low"] < row["score"] < row["high"] for row in found)
    model.fit_scale()
    found = model.rank(tmp_path)["ranking"]
    model.fitted[-1] *= 3  # as measured on images other than the references
    wider = model.rank(tmp_path)["ranking"]
    assert [row["score"] for row in wider] == [row["score"] for row in found]
    for row, before in zip(wider, found, strict=True):
        assert row["high"] - row["low"] == pytest.approx(3 * (before["high"] - before["low"]))
    light, dark = tmp_path / "light.png", tmp_path / "dark.png"
    assert model.compare(light, dark)[0] > 0.99
    torch.testing.assert_close(model.compare(light, dark), model.compare(dark, light)[list(SWAPPED)])


def test_a_folder_without_images_is_refused_and_broken_ones_are_set_aside(tmp_path):
    (tmp_path / "._torn.png").write_bytes(b"what macOS leaves on other disks")
    with pytest.raises(ValueError, match="this folder holds no file that ends in"):
        brightness().rank(tmp_path)
    (tmp_path / "torn.png").write_bytes(b"not a picture")
    with pytest.raises(ValueError, match=r"none of the 1 images .*torn\.png"):
        brightness().rank(tmp_path)
    (nothing,) = brightness().predict([{"images": [str(tmp_path / "torn.png")]}])
    assert nothing.keys() == {"error"}  # no empty ranking
    assert "torn.png: not an image" in nothing["error"]
    Image.new("RGB", (40, 30)).save(tmp_path / "dark.png")
    found = brightness().rank(tmp_path)
    assert [row["image"] for row in found["ranking"]] == [str(tmp_path / "dark.png")]
    assert [row["image"] for row in found["errors"]] == [str(tmp_path / "torn.png")]
    for name in (
        "drawing.svg",
        "new.jxl",
        "phone.heic",
    ):  # images, though of no kind that can be read, or no whole ones
        (tmp_path / name).write_bytes(b"no picture")
    (tmp_path / "notes.txt").write_text("of no concern")
    refused = {Path(row["image"]).name: row["error"] for row in brightness().rank(tmp_path)["errors"]}
    assert sorted(refused) == ["drawing.svg", "new.jxl", "phone.heic", "torn.png"]
    assert all("not an image in any of the formats" in reason for reason in refused.values())


def test_a_model_without_references_cannot_rank():
    with pytest.raises(ValueError, match="references"):
        make().score(pictures(2))


def test_the_answers_have_one_order_everywhere():
    assert (FIRST, SECOND, SIMILAR) == (0, 1, 2)
    assert SWAPPED == (1, 0, 2)


def test_the_example_shows_both_orders_of_a_pair():
    model = make()
    arguments = model.example()
    logits = model(**arguments)
    assert torch.equal(logits[0, [SECOND, FIRST, SIMILAR]], logits[1])
    assert dataclasses.asdict(model.config)["kind"] == "siamese"
