"""A model that ships is stored in a third of the space, and is the same on the chip."""

import pytest
import torch

from models import io
from models.stories.quantization import quantize
from tests.models import tiny
from tests.models.stories.shipped_packing import packed


@pytest.fixture(scope="module")
def model():
    made = tiny.make(vocabulary=48, memory=(64, 128), tokenizer=tiny.trained_tokenizer(48))
    made.memory.mean_0[3] = 0  # a row of no use
    return made.half().float()  # what is stored in half precision survives


def test_matrices_and_the_memory_come_back_as_the_chip_has_them(model, tmp_path):
    io.save(model, tmp_path / "plain")
    io.save(model, tmp_path / "packed", state=packed(model.state_dict()))
    sizes = [(tmp_path / name / io.WEIGHTS).stat().st_size for name in ("packed", "plain")]
    assert sizes[0] < 0.6 * sizes[1]
    loaded = io.load(tmp_path / "packed").state_dict()
    for name, tensor in model.state_dict().items():
        assert loaded[name].dtype == tensor.dtype
        if "mean" in name or name.endswith(".weight"):
            assert (loaded[name] - tensor).abs().amax(1).le(tensor.abs().amax(1) / 250).all()
        else:
            assert torch.equal(loaded[name], tensor), name
    on_chip, from_packed = quantize(model), quantize(io.load(tmp_path / "packed"))
    for one, other in zip(on_chip.memory, from_packed.memory, strict=True):
        assert (one.weights == other.weights).all()
        assert (one.multiplier == other.multiplier).all()


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_packed_tensors_that_do_not_belong_together_are_refused(model, tmp_path, every):
    stored = packed(model.state_dict())
    changes = {
        "without": lambda state, name: state.pop(name),
        "scalar": lambda state, name: state.update({name: state[name].flatten()[0]}),
        "short": lambda state, name: state.update({name: state[name].flatten()[1:]}),
        "wide": lambda state, name: state.update({name: state[name][None]}),
    }
    for name in [*stored][::every]:
        for change, make in changes.items():
            state = dict(stored)
            make(state, name)
            io.save(model, tmp_path, state=state)
            with pytest.raises(ValueError, match=r"weights|does not fit"):
                pytest.fail(f"{change} {name}: {io.load(tmp_path)}")
    io.save(model, tmp_path, state={**stored, "memory.mean_0.scale": torch.full((64,), 3e38)})
    assert all(tensor.isfinite().all() for tensor in io.load(tmp_path).state_dict().values())
