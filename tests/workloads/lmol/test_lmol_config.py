"""Settings that contradict each other, and those that follow from others."""

import pytest

from pipelines.workloads.lmol import Config


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"model": {"lora": True}}, "model.lora=True does nothing for model.kind=siamese"),
        ({"model": {"base": "x"}}, "model.base=x does nothing for model.kind=siamese; .* model.kind=cross or vlm"),
        ({"model": {"kind": "cross", "base": "x", "lora": True}}, "model.lora=True does nothing for model.kind=cross"),
        ({"model": {"kind": "cross", "pool": True}}, "model.pool=True does nothing for .* set model.kind=vlm "),
        ({"model": {"kind": "cross", "texture": True}}, "model.texture=True does nothing for model.kind=cross"),
        ({"model": {"heads": 2}}, "model.heads=2 does nothing for model.kind=siamese"),
        ({"model": {"kind": "vlm", "base": "x"}}, "set model.lora=true too"),
        ({"model": {"kind": "vlm", "base": "x", "lora": True, "width": 8}}, "are fixed by model.base"),
        ({"model": {"kind": "cross"}, "training": {"steps": 1, "shift": 2}}, "training.shift=2 moves images"),
        ({"data": {"folds": 4, "fold": 4}}, "data.fold=4 must be below data.folds=4"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(tree, message):
    with pytest.raises(ValueError, match=message):
        Config.model_validate(tree)


def test_a_base_of_cross_needs_no_adapters_and_leaves_the_heads_sizes_free():
    model = {"kind": "cross", "base": "x", "width": 8, "layers": 1, "heads": 2}
    found = Config.model_validate({"model": model})
    assert found.frozen
    assert found.shift == 0
