"""Which sizes of a tiny transformer fit the RP2040."""

from dataclasses import replace

import pytest

from models.stories import rp2040
from models.stories.config import PRESETS, TinyTransformerConfig


def test_the_memory_of_a_model_grows_with_every_size():
    config = PRESETS["rp2040-speed"]
    assert rp2040.model_bytes(config) < rp2040.sram_bytes(config) < 40_000
    for name in rp2040.FORMAT_LIMITS:
        larger = replace(config, **{name: 2 * getattr(config, name)})
        assert rp2040.sram_bytes(larger) > rp2040.sram_bytes(config)


def test_weights_stay_in_flash_where_sram_has_no_room_for_them():
    resident, reader = PRESETS["rp2040-story"], PRESETS["rp2040-reader"]
    assert not rp2040.streams(resident)
    assert rp2040.streams(reader)
    assert rp2040.sram_bytes(reader) < rp2040.SRAM_BYTES < rp2040.model_bytes(reader)
    larger = replace(reader, hidden=768, counts=98304)
    with pytest.raises(ValueError, match="2 MB of flash"):
        rp2040.check(larger)
    rp2040.check(replace(larger, flash_megabytes=4))


def test_the_story_preset_tells_200_tokens_in_a_second_and_leaves_48_kb_to_others():
    assert rp2040.sram_bytes(PRESETS["rp2040-story"]) <= rp2040.SRAM_BYTES - 48 * 1024
    assert rp2040.CLOCK_HZ / rp2040.cycles_per_token(PRESETS["rp2040-story"]) >= 200


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"layers": 10, "width": 120, "context": 128}, "bytes of SRAM, .* too many; lower one of: .*model.context="),
        ({"hidden": 1024, "layers": 9, "width": 128}, "MB of flash leave .* give model.flash_megabytes=4"),
        ({"width": 6, "heads": 2}, "model.width=6 must be 4 to 128 and a multiple of 4"),
        ({"context": 512}, "model.context=512 must be 2 to 256"),
    ],
)
def test_a_model_too_big_for_the_chip_is_refused_with_what_to_lower(change, told):
    config = replace(PRESETS["rp2040-speed"], **change)
    with pytest.raises(ValueError, match=told):
        rp2040.check(config)


def test_what_the_refusal_says_to_lower_to_fits():
    config = TinyTransformerConfig(512, 64, 16, 4, 256, 160)
    with pytest.raises(ValueError, match="lower one of") as error:
        rp2040.check(config)
    excess = int(str(error.value).split(" of SRAM, ")[1].split(" ")[0].replace(",", ""))
    assert excess == rp2040.sram_bytes(config) - rp2040.SRAM_BYTES
    for word in str(error.value).split("lower one of: ")[1].split(", "):
        name, value = word.removeprefix("model.").split("=")
        smaller = replace(config, **{name: int(value)})
        assert rp2040.sram_bytes(smaller) <= rp2040.SRAM_BYTES
