import json
import os
import sys
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import safetensors.torch
import torch
from safetensors import safe_open
from torch import nn

from common import safetensors_bytes
from models import io
from models.routing.config import KINDS, RoutingConfig
from models.routing.policy import RoutingPolicy


def tiny(kind: str = "gt", **sizes: int) -> RoutingPolicy:
    return RoutingPolicy(RoutingConfig(kind, **{"width": 8, "heads": 2, "layers": 1, **sizes}))


@dataclass(frozen=True)
class TiedConfig:
    width: int = 4
    scale: float = 1.0


class Tied(io.Model):
    """A language model's habit: one matrix is both embedding and output layer."""

    family = "tied"

    def __init__(self, config: TiedConfig):
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(6, config.width)
        self.head = nn.Linear(config.width, 6, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("count", torch.tensor(3))
        pair = torch.randn(2, config.width)
        self.first, self.second = nn.Parameter(pair[0]), nn.Parameter(pair[1])  # two parameters in one storage


@pytest.fixture
def tied(monkeypatch):
    family = SimpleNamespace(build=lambda config: Tied(io.config_from(TiedConfig, config)))
    monkeypatch.setitem(sys.modules, "models.tied", family)
    monkeypatch.setitem(io.FAMILIES, "tied", "models.tied")
    return Tied(TiedConfig(scale=2.5))


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_model_comes_back_bit_for_bit_in_eval_mode(kind, tmp_path):
    model = tiny(kind, layers=2)
    io.save(model, tmp_path / "new" / "best")
    again = io.load(tmp_path / "new" / "best")
    assert again.config == model.config
    assert not again.training
    assert list(again.state_dict()) == list(model.state_dict())
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name])
    assert sorted(path.name for path in (tmp_path / "new" / "best").iterdir()) == ["config.json", "model.safetensors"]
    assert json.loads((tmp_path / "new/best/config.json").read_text())["family"] == "routing"


def test_equal_models_give_equal_bytes_and_metadata_is_kept(tmp_path):
    model = tiny()
    files = []
    for i in range(4):
        io.save(model, tmp_path / str(i), {"z": "1", "commit": "abc", "a": "2"})
        files.append((tmp_path / str(i) / "model.safetensors").read_bytes())
    assert len(set(files)) == 1
    with safe_open(tmp_path / "0" / "model.safetensors", "pt") as file:  # the library reads what was written
        metadata = file.metadata()
    assert (metadata["commit"], metadata["format"]) == ("abc", "pt")


def test_tied_parameters_are_stored_once_and_tied_again(tied, tmp_path):
    io.save(tied, tmp_path)
    again = io.load(tmp_path)
    assert again.head.weight is again.embedding.weight
    assert again.config.scale == 2.5
    for name, tensor in tied.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name])
    assert (tmp_path / "model.safetensors").read_bytes().count(b"weight") == 1


def test_the_type_of_numbers_is_kept(tied, tmp_path):
    io.save(tied.bfloat16(), tmp_path)
    again = io.load(tmp_path)
    assert again.head.weight.dtype == torch.bfloat16
    assert again.head.weight is again.embedding.weight
    assert torch.equal(again.head.weight, tied.head.weight)
    assert again.count.dtype == torch.int64


def test_loading_leaves_the_random_state_alone(tmp_path):
    io.save(tiny(), tmp_path)
    before = torch.random.get_rng_state()
    io.load(tmp_path)
    assert torch.equal(before, torch.random.get_rng_state())


def test_a_save_killed_between_its_files_never_loads_wrongly(tmp_path, monkeypatch):
    io.save(tiny(heads=2), tmp_path)
    write_whole = io.write_whole

    def killed_before_config(path, *data, **more):
        if path.name == "config.json":
            raise KeyboardInterrupt
        write_whole(path, *data, **more)

    monkeypatch.setattr(io, "write_whole", killed_before_config)
    newer = tiny(heads=2)
    with pytest.raises(KeyboardInterrupt):
        io.save(newer, tmp_path)
    assert torch.equal(io.load(tmp_path).decoder.load, newer.decoder.load)  # same config: a valid pair
    with pytest.raises(KeyboardInterrupt):
        io.save(tiny(heads=4), tmp_path)  # the same shapes, another model
    with pytest.raises(ValueError, match=r"was saved with another config than the config.json in its folder"):
        io.load(tmp_path)


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    io.save(tiny(), tmp_path)
    before = (tmp_path / "model.safetensors").read_bytes()

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        io.save(tiny(), tmp_path)
    assert (tmp_path / "model.safetensors").read_bytes() == before


def test_a_missing_folder_or_file_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"no model in .*nowhere: there is no config.json; .*RUN/model/best"):
        io.load(tmp_path / "nowhere")
    io.save(tiny(), tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"there is no model.safetensors; copy it there"):
        io.load(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"family": "rooting", "config": {}}', "unknown family 'rooting'; known families: routing"),
        ('{"family": "os", "config": {}}', "unknown family 'os'"),
        ('{"family": ["routing"], "config": {}}', "unknown family"),
        ('{"config": {}}', 'must be {"family"'),
        ('{"family": "routing", "config": []}', 'must be {"family"'),
        ('{"family": "routing", "config": {}, "more": 1}', 'must be {"family"'),
        ("{", "is not JSON"),
        ("\xff\xfe", "is not JSON"),
    ],
)
def test_a_wrong_config_file_is_refused(text, message, tmp_path):
    io.save(tiny(), tmp_path)
    (tmp_path / "config.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match=message) as caught:
        io.load(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"widht": 8}, "unknown config key 'widht'; did you mean 'width'?"),
        ({"dropout": 0.1}, "unknown config key 'dropout'; known keys: kind, width, heads, layers, neighbors"),
        ({"width": "8"}, "config key 'width' is '8'; it must be of type int"),
        ({"width": True}, "config key 'width' is True; it must be of type int"),
        ({"heads": 3}, "width 8 is not a multiple of heads 3"),
        ({"heads": 0}, "heads is 0; it must be 1 or more"),
        ({"kind": "lstm"}, "kind is 'lstm'; known kinds: gat, gt, dgt"),
        ({"neighbors": 5}, "neighbors is 5, but only kind 'gat'"),
    ],
)
def test_a_wrong_config_key_or_value_is_refused(change, message, tmp_path):
    model = tiny()
    io.save(model, tmp_path)
    rewrite(tmp_path, {**json.loads((tmp_path / "config.json").read_text())["config"], **change})
    with pytest.raises(ValueError, match=r"config\.json: ") as caught:
        io.load(tmp_path)
    assert message in str(caught.value)


def rewrite(folder, config):
    """Give the model another config in both places, as a tool that edits models would."""
    described = {"family": "routing", "config": config}
    (folder / "config.json").write_text(json.dumps(described))
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    header = {"model": json.dumps(described, sort_keys=True)}
    (folder / "model.safetensors").write_bytes(b"".join(safetensors_bytes.pieces(tensors, header)))


def test_what_does_not_fit_is_told_in_one_order(tmp_path):
    model = tiny()
    wrong = {name: torch.zeros(7) for name in sorted(model.state_dict())} | {"b": torch.zeros(1), "a": torch.zeros(1)}
    said = []
    for names in (list(wrong), list(reversed(wrong))):
        with pytest.raises(ValueError, match=r"it has unknown a, b; it has of another shape") as refused:
            io.fill(model, {name: wrong[name] for name in names}, tmp_path)
        said.append(str(refused.value))
    assert said[0] == said[1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"width": 16}, r"it has of another shape .*\[8.*instead of .*16"),
        ({"layers": 2}, r"it lacks layers.1"),
        ({"layers": 1, "kind": "dgt"}, r"it lacks decoder.dynamic"),
        ({"kind": "gat"}, r"it lacks layers.0.attention.*; it has unknown layers.0.attention"),
    ],
)
def test_weights_of_another_model_are_refused(change, message, tmp_path):
    io.save(tiny(), tmp_path)
    rewrite(tmp_path, {**json.loads((tmp_path / "config.json").read_text())["config"], **change})
    with pytest.raises(ValueError, match=f"does not fit config.json: .*{message}"):
        io.load(tmp_path)


def test_weights_that_lost_a_tie_are_refused(tied, tmp_path):
    io.save(tied, tmp_path)
    loose = Tied(tied.config)
    loose.head.weight = nn.Parameter(torch.zeros(6, 4))
    tensors, _ = io.stored_weights(tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"it lacks head.weight"):
        io.fill(loose, tensors, tmp_path)


@pytest.mark.parametrize("kept", [0, 4, 100, 0.5, -1])
def test_truncated_weights_are_refused(kept, tmp_path):
    io.save(tiny(), tmp_path)
    data = (tmp_path / "model.safetensors").read_bytes()
    length = int(len(data) * kept) if isinstance(kept, float) else kept
    (tmp_path / "model.safetensors").write_bytes(data[:length])
    with pytest.raises(ValueError, match=r"model.safetensors is damaged \(.*; copy it again"):
        io.load(tmp_path)


def test_a_flipped_byte_is_refused_or_was_of_no_consequence(tmp_path):
    model = tiny()
    io.save(model, tmp_path)
    path = tmp_path / "model.safetensors"
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    for position in [*range(0, start, 7), *range(start, len(data), 501)]:
        flipped = bytearray(data)
        flipped[position] ^= 1 << position % 8
        path.write_bytes(flipped)
        try:
            again = io.load(tmp_path)
        except ValueError as error:
            assert str(tmp_path) in str(error)  # noqa: PT017 - most positions must raise, a few need not
            continue
        assert position < start, "a flipped weight was not noticed"
        for name, tensor in model.state_dict().items():
            assert torch.equal(tensor, again.state_dict()[name])


def test_weights_without_our_metadata_are_welcome(tmp_path):
    model = tiny()
    io.save(model, tmp_path)
    safetensors.torch.save_file(model.state_dict(), tmp_path / "model.safetensors")
    assert torch.equal(io.load(tmp_path).decoder.load, model.decoder.load)
