"""Files of candles as models take them: as many as count, across the gaps that training filled."""

from dataclasses import replace

import pytest

from pipelines.answers import trained
from pipelines.workloads.crypto import input_files
from tests.workloads.crypto.test_crypto import write

COIN = "AUSDT"


@pytest.fixture
def asked(tmp_path, capsys):
    """A function that asks the model that ships about a file without some rows: its input, the answer, what is said."""
    write(tmp_path, COIN, 900)
    path = tmp_path / f"{COIN}-15m.csv"
    rows = path.read_text().splitlines(keepends=True)

    def ask(absent=(), fill=0):
        path.write_text("".join(row for number, row in enumerate(rows) if number not in absent))
        known = trained.find("crypto", "crypto-simulated", None, "cpu")
        model = known.first
        model.config = replace(model.config, fill=fill)
        (given,) = input_files.read([path])
        read = known.asked(given)
        (answer,) = known.together([read], {"now": "newest"})
        return len(read.candles.time), answer, capsys.readouterr().err, model.candles_used()

    return ask


def test_of_a_long_file_the_candles_that_count_are_read_and_no_more(asked):
    number, answer, said, used = asked()
    assert number == used < 900
    assert "signal" in answer
    assert not said


def test_gaps_that_training_filled_are_filled_and_others_end_what_is_read(asked):
    gap, longer = (880, 881), (700, 701, 702)
    number, answer, said, _ = asked(gap)
    assert (number, answer) == (18, {"error": "there are only 18 candles; give 233 or more"})
    assert "of 898 candles, the last 18 follow the newest gap" in said
    number, answer, said, used = asked(gap, fill=2)
    assert number == used
    assert "signal" in answer
    assert not said
    assert asked(longer, fill=2)[0] == 197
