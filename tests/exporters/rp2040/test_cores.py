"""The second core: the same tokens as with one, whatever the order in which the cores come to run."""

import random
from functools import cache

import pytest
import torch

from exporters import to_rp2040
from exporters.rp2040 import layout, uf2
from exporters.rp2040.settings import Settings
from models.stories.integer_transformer import Sampler
from models.stories.quantization import quantize
from models.stories.tokens import END
from tests.exporters.rp2040 import read_back
from tests.exporters.rp2040.chip import Chip
from tests.exporters.rp2040.files import SHAPES, SOME, quantized
from tests.models.tiny import make, trained_tokenizer

PROMPT, TOKENS = "The cat", 6
LOST = "The second core does not answer: one core does everything, at half the speed."
LINES = ["/ids on", f"/tokens {TOKENS}", PROMPT]


@cache
def story(shape: str) -> tuple[bytes, str, str]:
    """(UF2 file, greedy tokens, sampled tokens) of a model of this shape."""
    integers = quantized(-50.0, **SHAPES[shape])
    vocabulary = layout.pack_vocabulary(trained_tokenizer(32))
    ids = read_back.Vocabulary(vocabulary).encode(PROMPT.encode())
    greedy = integers.decode(ids, TOKENS)
    drawn = integers.decode(ids, TOKENS, Sampler(integers, 205, 5, 1))
    runtime, settings = to_rp2040.RUNTIME.read_bytes(), Settings(top_k=5, seed=1)
    data = uf2.join(runtime, settings.pack(), layout.pack_model(integers, vocabulary), vocabulary)
    return data, " ".join(map(str, greedy)), " ".join(map(str, drawn))


def tell(shape: str, skew: random.Random | None = None, answers: int = -1, board: type[Chip] = Chip) -> str:
    data, greedy, drawn = story(shape)
    chip = board(data, [*LINES, "/temperature 0", PROMPT], skew, answers)
    chip.run(60)
    assert f"> {PROMPT}\n{drawn}\n" in chip.text
    assert f"> {PROMPT}\n{greedy}\n" in chip.text
    held = bool(chip.registers[chip.force_off] & chip.second_core)
    assert held is (LOST in chip.text)  # so that a core that is late writes nothing
    return chip.text


@pytest.mark.parametrize(
    "shape", [pytest.param(name, marks=() if name in SOME else pytest.mark.slow) for name in SHAPES]
)
def test_two_cores_choose_as_the_reference_does(shape):
    output = tell(shape)
    assert "Cores: 2" in output
    assert LOST not in output


def test_of_equal_logits_in_both_cores_shares_the_first_is_chosen():
    model = make()
    with torch.no_grad():
        model.embedding.weight.copy_(model.embedding.weight[:1].expand_as(model.embedding.weight))
        model.output_bias.zero_()
        model.output_bias[END] = -50
    vocabulary = layout.pack_vocabulary(trained_tokenizer(32))
    packed = layout.pack_model(quantize(model), vocabulary)
    data = uf2.join(to_rp2040.RUNTIME.read_bytes(), Settings(temperature=0).pack(), packed, vocabulary)
    chip = Chip(data, [*LINES, ""])
    chip.run(60)
    assert chip.text.count("> \n1 1 1 1 1 1\n") == 1


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_the_order_in_which_the_cores_run_changes_no_token(seed):
    shapes = sorted(SHAPES)
    tell(shapes[seed % len(shapes)], random.Random(seed))


@pytest.mark.exhaustive
def test_a_thousand_orders_change_no_token():
    shapes = sorted(SHAPES)
    for seed in range(1000):
        output = tell(shapes[seed % len(shapes)], random.Random(seed))
        assert LOST not in output


class Talkative(Chip):
    """Its second core's boot ROM says twice that it has emptied its FIFO."""

    def _reset_second(self, held: bool) -> None:
        super()._reset_second(held)
        if not held:
            self.cores[0].inbox.append(0)


def test_words_of_before_do_not_keep_the_second_core_from_starting():
    assert "Cores: 2" in tell("head size 2", board=Talkative)


def test_without_a_second_core_one_does_everything_and_says_so():
    output = tell("head size 2", answers=0)
    assert "Cores: 1" in output
    assert output.index(LOST) < output.index("Tiny transformer")


@pytest.mark.slow
@pytest.mark.parametrize("answers", [1, 40])
def test_a_second_core_that_dies_in_a_story_costs_no_token(answers):
    output = tell("head size 2", answers=answers)
    assert "Cores: 2" in output
    assert output.index("Tiny transformer") < output.index(LOST)
