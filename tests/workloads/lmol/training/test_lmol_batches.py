"""Batches of pairs: each image once, moved and turned depending on the pair only, the same from workers."""

import pytest
import torch
from torch import nn

from pipelines.engine.batches import stream
from pipelines.workloads.lmol.training.batches import Pairs
from tests.workloads.lmol.small import CPU, make

PAIRS = torch.tensor([[0, 1, 0], [1, 0, 1], [2, 1, 2], [0, 5, 0]])


def images(count=6, size=8, channels=1):
    return torch.arange(count * channels * size**2).view(count, channels, size, size).remainder(251).to(torch.uint8)


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


def test_a_mirrored_image_is_turned_from_left_to_right_or_as_it_is():
    shown = images()
    source = Pairs(shown, PAIRS.repeat(50, 1), mirror=True, key=7)
    batch = source.batch(torch.arange(200))
    seen = []
    for k in range(200):
        original, found = shown[source.pairs[k, 1]], batch["images"][batch["second"][k]]
        seen.append([torch.equal(way, found) for way in (original, original.flip(2))].index(True))
    assert 60 < sum(seen) < 140


def test_moves_follow_the_key_and_differ_between_the_images_of_a_pair():
    pairs = torch.tensor([[0, 1, 0]]).repeat(100, 1)
    same = images(1).repeat(2, 1, 1, 1)  # two equal images, so that what differs is their moves
    one, other = (Pairs(same, pairs, shift=2, key=key).batch(torch.arange(100)) for key in (7, 8))
    first, second, elsewhere = (
        one["images"][one["first"]],
        one["images"][one["second"]],
        other["images"][other["first"]],
    )
    for moved in (second, elsewhere):
        assert sum(not torch.equal(*each) for each in zip(first, moved, strict=True)) > 80


@pytest.mark.parametrize("kind", ["siamese", "scorer"])
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
