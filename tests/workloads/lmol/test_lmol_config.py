"""Settings that contradict each other, and those that follow from others."""

import pytest

from models.images import image_files
from pipelines.workloads.lmol.config import Config


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"model": {"lora": True}}, "model.lora=True does nothing for model.kind=siamese"),
        ({"model": {"base": "x", "lora": True}}, "model.lora=True does nothing for model.kind=siamese"),
        ({"model": {"kind": "scorer", "four_bit": True}}, "model.four_bit=True does nothing .* set model.kind=vlm "),
        ({"model": {"kind": "vlm", "texture": True}}, "model.texture=True does nothing for model.kind=vlm"),
        ({"model": {"heads": 2}}, "model.heads=2 does nothing for model.kind=siamese"),
        ({"model": {"kind": "vlm", "base": "x"}}, "set model.lora=true too"),
        ({"model": {"kind": "vlm", "base": "x", "lora": True, "width": 8}}, "are fixed by model.base"),
        (
            {"model": {"kind": "vlm"}, "training": {"steps": 1, "projector_rate": 0.1}},
            "training.projector_rate=0.1 is for a projector that trains beside adapters; set model.lora=true",
        ),
        ({"model": {"base": "x"}, "training": {"steps": 1, "shift": 2}}, "training.shift=2 moves images"),
        ({"data": {"maximum_pixels": image_files.MOST_PIXELS + 1}}, "less than or equal to 178956970"),
        ({"data": {"folds": 4, "fold": 4}}, "data.fold=4 must be below data.folds=4"),
        ({"data": {"fold": -1}}, "data.fold=-1 must be"),
        ({"model": {"tune": "all"}}, "give a model.base"),
        ({"data": {"fit": "pad"}}, "data.fit=pad does nothing for digits"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(tree, message):
    with pytest.raises(ValueError, match=message):
        Config.model_validate(tree)


def test_over_a_base_a_siamese_judges_by_its_features_and_moves_no_images():
    found = Config.model_validate({"data": {"source": "photos"}, "model": {"base": "x"}})
    assert (found.frozen, found.texture, found.shift) == (True, False, 0)


def test_the_size_of_images_is_that_of_the_tower_unless_it_is_given(tmp_path):
    def size(words, **model):
        return Config.model_validate({"data": words, "model": model}).data.size

    (tmp_path / "config.json").write_text('{"vision_config": {"image_size": 336}}')
    given = {"kind": "siamese", "base": str(tmp_path)}
    assert size({}, **given) == 336
    assert size({"size": 64}, **given) == 64
    assert size({}, base="efficientnet-lite0") == 224
    (tmp_path / "config.json").write_text('{"model_type": "resnet"}')
    (tmp_path / "preprocessor_config.json").write_text('{"crop_size": {"height": 160, "width": 160}}')
    assert size({}, **given) == 160
    whole = Config.model_validate({"model": given})
    assert Config.model_validate(whole.model_dump(mode="json")) == whole
