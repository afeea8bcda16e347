"""Pairs as batches, the loss over both orders, and the gate before the first step."""

import time

import pytest
import torch
from torch import nn

from common.errors import UserError
from pipelines.engine.batches import stream
from pipelines.workloads.lmol import Config, data
from pipelines.workloads.lmol.task import ComparisonTask, Pairs, answers, check_trains
from tests import towers

CPU = torch.device("cpu")
FEW = {"train_pairs": 80, "evaluation_pairs": 200}
SMALL = {"siamese": {"width": 16}, "cross": {"width": 16, "layers": 1}, "llava": {"width": 16, "layers": 2, "heads": 2}}


def config(kind="siamese", training=None, loader="resident", **model):
    tree = {"model": {"kind": kind, **SMALL[kind], **model}, "training": {"steps": 1, **(training or {})}}
    return Config.model_validate({"data": {**FEW, "loader": loader}, **tree})


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("digits")
    data.prepare(config(), folder)
    return folder


def make(prepared, *args, **changes):
    torch.manual_seed(0)
    return ComparisonTask(config(*args, **changes), prepared, CPU)


@pytest.fixture(scope="module")
def whole(prepared):
    """A task of each small kind, for tests that leave it as it is."""
    return {kind: make(prepared, kind) for kind in ("siamese", "cross")}


def images(count=6, size=8, channels=1):
    return torch.arange(count * channels * size**2).view(count, channels, size, size).remainder(251).to(torch.uint8)


PAIRS = torch.tensor([[0, 1, 0], [1, 0, 1], [2, 1, 2], [0, 5, 0]])


def test_a_batch_holds_each_image_once_and_pairs_as_rows_of_it():
    batch = Pairs(images(), PAIRS).batch(torch.tensor([0, 1, 2]))
    assert len(batch["images"]) == 3
    for k in range(3):
        assert torch.equal(batch["images"][batch["first"][k]], images()[PAIRS[k, 0]])
        assert torch.equal(batch["images"][batch["second"][k]], images()[PAIRS[k, 1]])
    assert batch["label"].tolist() == [0, 1, 2]


def test_kept_features_take_the_place_of_images():
    encoded = torch.randn(6, 3)
    batch = Pairs(images(), PAIRS, encoded).batch(torch.tensor([3]))
    assert "images" not in batch
    assert torch.equal(batch["encoded"][batch["second"][0]], encoded[5])


@pytest.mark.parametrize("channels", [1, 3])
def test_a_moved_image_repeats_its_edge_and_depends_on_the_pair_alone(channels):
    shown = images(channels=channels)
    source = Pairs(shown, PAIRS.repeat(50, 1), shift=2, key=7)
    batch = source.batch(torch.arange(200))
    padded = nn.functional.pad(shown.float(), (2, 2, 2, 2), mode="replicate").to(torch.uint8)
    seen = set()
    for k in range(200):
        moved = batch["images"][batch["first"][k]]
        original = padded[source.pairs[k, 0]]
        places = [(y, x) for y in range(5) for x in range(5) if torch.equal(original[:, y : y + 8, x : x + 8], moved)]
        assert places
        seen.update(places)
    assert len(seen) == 25
    alone = source.batch(torch.tensor([17]))
    for side in ("first", "second"):
        assert torch.equal(alone["images"][alone[side][0]], batch["images"][batch[side][17]])


def test_a_turned_image_is_one_of_eight():
    shown = images()
    source = Pairs(shown, PAIRS.repeat(50, 1), turn=True, key=7)
    batch = source.batch(torch.arange(200))
    seen = set()
    for k in range(200):
        original, turned = shown[source.pairs[k, 1]], batch["images"][batch["second"][k]]
        ways = [original.rot90(n, (1, 2)) for n in range(4)]
        ways += [way.flip(2) for way in ways]
        seen.add([torch.equal(way, turned) for way in ways].index(True))
    assert len(seen) == 8


@pytest.mark.parametrize("kind", ["siamese", "cross"])
def test_images_that_workers_read_make_the_same_batches(prepared, whole, kind):
    resident, streamed = whole[kind], make(prepared, kind, loader="stream")
    plan = [torch.tensor([3, 0]), torch.tensor([7, 40, 7])]
    for part in ("train", "validation"):
        one, other = getattr(resident, part), getattr(streamed, part)
        assert one.workers == 0 < other.workers
        batches = [[batch for _, batch in stream(source, iter(plan), CPU)] for source in (one, other)]
        for batch, same in zip(*batches, strict=True):
            assert batch.keys() == same.keys()
            assert all(torch.equal(batch[name], same[name]) for name in batch)


@pytest.mark.parametrize("kind", ["siamese", "cross"])
def test_the_loss_of_a_batch_is_the_sum_over_its_parts(whole, kind):
    subject = whole[kind]
    together = subject.loss(subject.model, subject.train.batch(torch.arange(12)))
    parts = [subject.loss(subject.model, subject.train.batch(items)) for items in torch.arange(12).split(3)]
    assert together.count == sum(part.count for part in parts) == 12
    assert together.value.item() == pytest.approx(sum(part.value.item() for part in parts), rel=1e-5)
    for name, value in together.metrics.items():
        assert value.item() == pytest.approx(sum(part.metrics[name].item() for part in parts), rel=1e-4, abs=1e-6)


def test_a_pair_and_the_same_pair_swapped_have_the_same_loss(whole):
    subject = whole["cross"]
    batch = subject.train.batch(torch.arange(20))
    other = {**batch, "first": batch["second"], "second": batch["first"]}
    other["label"] = torch.tensor([1, 0, 2])[batch["label"]]
    one, swapped = subject.loss(subject.model, batch), subject.loss(subject.model, other)
    assert one.value.item() == pytest.approx(swapped.value.item(), rel=1e-5)


def test_inconsistency_costs_as_much_as_its_weight(whole, monkeypatch):
    losses, subject = {}, whole["cross"]
    for weight in (0.0, 2.0):
        monkeypatch.setattr(subject, "config", config("cross", training={"consistency": weight}))
        losses[weight] = subject.loss(subject.model, subject.train.batch(torch.arange(20)))
    found = losses[0.0].metrics["divergence"].item()
    one, other = (logits.log_softmax(-1) for logits in answers(subject.model, subject.train.batch(torch.arange(20))))
    forwards = nn.functional.kl_div(other, one, log_target=True, reduction="sum")
    backwards = nn.functional.kl_div(one, other, log_target=True, reduction="sum")
    assert found == pytest.approx((forwards + backwards).item() / 2, rel=1e-4)
    assert found > 0.1
    assert (losses[2.0].value - losses[0.0].value).item() == pytest.approx(2 * found, rel=1e-4)
    siamese = whole["siamese"]
    assert siamese.loss(siamese.model, siamese.train.batch(torch.arange(20))).metrics["divergence"] == 0


class Constant(nn.Module):
    """Answers without looking."""

    def __init__(self, logits):
        super().__init__()
        self.logits = nn.Parameter(logits)

    def forward(self, images, first, second, encoded=None):
        return self.logits.expand(len(first), 3)


def test_what_is_learned_are_the_frequencies_of_unselected_pairs(whole):
    """A model that knows nothing else is best off with them, though Similar is a third of the training pairs."""
    subject = whole["siamese"]
    scores = subject.comparisons.scores[subject.comparisons.parts["train"]]
    alike = (scores[:, None] == scores).sum() - len(scores)
    similar = alike / (len(scores) * (len(scores) - 1))
    assert similar < 0.2
    assert (subject.train.pairs[:, 2] == 2).double().mean() == pytest.approx(1 / 3, abs=0.01)
    natural = torch.tensor([(1 - similar) / 2, (1 - similar) / 2, similar]).float()
    model = Constant(natural.log())
    subject.loss(model, subject.train.batch(torch.arange(subject.train.size))).value.backward()
    assert (model.logits.grad / subject.train.size).abs().max() < 0.005


def test_validation_counts_a_pair_as_right_by_the_mean_of_both_orders(whole):
    subject = whole["cross"]
    batch = subject.validation.batch(torch.arange(100))
    scores = subject.score(subject.model, batch)
    assert {name: tuple(values.shape) for name, values in scores.items()} == dict.fromkeys(
        ("loss", "accuracy", "swap_consistency"), (100,)
    )
    one, other = answers(subject.model, batch)
    probabilities = subject.model.both_orders(batch["encoded"], batch["first"], batch["second"])
    torch.testing.assert_close(probabilities, (one.softmax(-1) + other.softmax(-1)) / 2)
    assert torch.equal(scores["accuracy"] == 1, probabilities.argmax(-1) == batch["label"])


def test_test_images_are_not_on_the_device(whole):
    subject = whole["siamese"]
    comparisons = subject.comparisons
    held = {bytes(image) for image in subject.train.images.movedim(1, -1).contiguous().numpy()}
    training = {
        bytes(image) for part in ("train", "validation") for image in comparisons.images[comparisons.parts[part]]
    }
    assert held <= training


def test_the_model_knows_the_question_and_the_references(whole):
    subject = whole["siamese"]
    found, comparisons = subject.model.config, subject.comparisons
    assert (found.attribute, found.theta, found.unit) == (comparisons.attribute, comparisons.theta, comparisons.unit)
    assert found.references == len(comparisons.references) > 1
    assert torch.equal(subject.model.reference_scores, torch.from_numpy(comparisons.scores[comparisons.references]))
    k = comparisons.references[3]
    assert torch.equal(subject.model.reference_images[3], torch.from_numpy(comparisons.images[k]).movedim(-1, 0))


# The gate


@pytest.mark.parametrize("kind", ["siamese", "cross"])
def test_the_gate_leaves_the_model_and_the_random_state_as_they_were(whole, kind):
    subject = whole[kind]
    state = {name: tensor.clone() for name, tensor in subject.model.state_dict().items()}
    random = torch.random.get_rng_state()
    count = sum(parameter.requires_grad for parameter in subject.model.parameters())
    assert check_trains(subject.model, subject).startswith(
        f"gate: {count} parameters get gradients, move and are saved"
    )
    assert torch.equal(random, torch.random.get_rng_state())
    assert subject.model.training
    assert all(parameter.grad is None for parameter in subject.model.parameters())
    for name, tensor in subject.model.state_dict().items():
        assert torch.equal(tensor, state[name])


def test_the_gate_names_a_part_that_no_gradient_reaches(prepared):
    subject = make(prepared)
    encoder = subject.model.encoder
    subject.model.encoder = Detached(encoder)
    with pytest.raises(UserError, match=r"^encoder\.inside\.0\.weight, .*, \.\.\.: 14 of 20 parameters .* no gradient"):
        check_trains(subject.model, subject)
    assert all(parameter.grad is None for parameter in subject.model.parameters())


class Detached(nn.Module):
    """Computes what it should and lets no gradient through."""

    def __init__(self, inside):
        super().__init__()
        self.inside = inside

    def forward(self, x):
        return self.inside(x).detach()


def test_the_gate_names_a_part_that_is_never_called(prepared):
    subject = make(prepared)
    subject.model.projector = nn.Linear(4, 4)
    with pytest.raises(UserError, match=r"^projector\.weight, projector\.bias: 2 of 22 parameters"):
        check_trains(subject.model, subject)


def test_the_gate_names_what_would_not_be_saved(prepared):
    subject = make(prepared)

    def leave_out(module, state, prefix, metadata):
        del state["similar"]

    subject.model.register_state_dict_post_hook(leave_out)
    with pytest.raises(UserError, match=r"^similar would train but not be saved"):
        check_trains(subject.model, subject)


def test_the_gate_notices_that_a_saved_model_is_another_one(prepared):
    subject = make(prepared)
    subject.model.encoder[1].eps = 0.1  # kept by no file
    with pytest.raises(UserError, match=r"the model's logits differ by"):
        check_trains(subject.model, subject)


@pytest.mark.slow
def test_the_gate_names_a_projector_that_is_detached(prepared):
    subject = make(prepared, "llava", lora=True)
    inner = subject.model.base.model
    inner.multi_modal_projector = Detached(inner.multi_modal_projector)
    with pytest.raises(UserError, match=r"multi_modal_projector.*: 4 of \d+ parameters .* get no gradient"):
        check_trains(subject.model, subject)


@pytest.mark.slow
def test_the_gate_notices_that_a_tower_is_not_its_bases(prepared, tmp_path):
    subject = make(prepared, "cross", base=towers.save_tower("siglip", tmp_path / "base"))
    assert subject.train.encoded.shape[1:] == (16, 16)
    assert "features of" in subject.notes[1]
    subject.model.tower.network.encoder.layers[0].mlp.fc2.bias.add_(1)  # stored by neither
    with pytest.raises(UserError, match=r"the model's logits differ by .* or the base is not restored"):
        check_trains(subject.model, subject)


@pytest.mark.slow
def test_a_base_that_is_not_there_is_the_users_to_mend(prepared, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match=r"^model: base 'no/where' is neither a complete folder"):
        make(prepared, "cross", base="no/where")


# Settings


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"model": {"lora": True}}, "model.lora=True does nothing for model.kind=siamese"),
        ({"model": {"base": "x"}}, "model.base=x does nothing for model.kind=siamese; .* model.kind=cross or llava"),
        ({"model": {"kind": "cross", "base": "x", "lora": True}}, "model.lora=True does nothing for model.kind=cross"),
        ({"model": {"kind": "cross", "pool": True}}, "model.pool=True does nothing for .* set model.kind=llava "),
        ({"model": {"kind": "cross", "texture": True}}, "model.texture=True does nothing for model.kind=cross"),
        ({"model": {"heads": 2}}, "model.heads=2 does nothing for model.kind=siamese"),
        ({"model": {"kind": "llava", "base": "x"}}, "set model.lora=true too"),
        ({"model": {"kind": "llava", "base": "x", "lora": True, "width": 8}}, "are those of model.base"),
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


def test_sizes_that_do_not_fit_the_images_are_refused(prepared):
    with pytest.raises(UserError, match="size 32 cannot be halved 6 times"):
        make(prepared, layers=6)
    with pytest.raises(UserError, match="width 16 is not a multiple of heads 3"):
        make(prepared, "cross", heads=3)


# Speed


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["cross", "llava"])
def test_kept_features_and_encoding_once_make_steps_at_least_half_as_fast_again(prepared, kind):
    """Beside the same model encoding both images of every pair in both orders, in turn on the same machine."""
    subject = make(prepared, kind, width=None, layers=None, heads=None, lora=kind == "llava")
    model = subject.model.train()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
    every = Pairs(subject.train.images, subject.train.pairs)

    def kept(items):
        return subject.loss(model, subject.train.batch(items)).value

    def encoded_each_time(items):
        batch = every.batch(items)
        first, second = batch["first"], batch["second"]
        shown = torch.cat([first, second, second, first])
        rows = torch.arange(4 * len(items)).view(4, -1)

        def call(images, both_first, both_second, encoded):
            return model(images[shown], rows[[0, 2]].flatten(), rows[[1, 3]].flatten())

        return subject.loss(call, batch).value

    torch.testing.assert_close(kept(torch.arange(4)), encoded_each_time(torch.arange(4)), rtol=0.2, atol=0.2)
    seconds = {kept: [], encoded_each_time: []}
    for step in range(8):
        for way, times in seconds.items():
            began = time.process_time()
            way(torch.arange(32) + 32 * (step % 7)).backward()
            optimizer.step()
            optimizer.zero_grad()
            times.append(time.process_time() - began)
    ratio = min(seconds[encoded_each_time]) / min(seconds[kept])
    print(f"{kind}: {1 / min(seconds[kept]):.1f} steps/s, {ratio:.2f} times as many as without")
    assert ratio >= 1.5
