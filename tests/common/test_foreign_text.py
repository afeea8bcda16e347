"""Text that others wrote: on a terminal, and in a spreadsheet."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.foreign_text import from_csv, printable, to_csv


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a name, plain: 中文 é", "a name, plain: 中文 é"),
        ("\x1b[2Jgone", "\\x1b[2Jgone"),
        ("two\nlines", "two\\nlines"),
        ("evil\u202egpj.exe", "evil\\u202egpj.exe"),
        (b"not \xff UTF-8".decode(errors="surrogateescape"), "not \\udcff UTF-8"),
    ],
)
def test_what_a_terminal_does_not_print_is_escaped(text, shown):
    assert printable(text) == shown


def test_a_long_text_is_cut():
    assert printable("x" * 1000, 10) == "xxxxxxx..."


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", "\n", "\uff1d"])
def test_no_spreadsheet_runs_a_cell(start):
    text = to_csv([f"{start}head"], [[f"{start}cmd|' /C calc'!A0"]])
    for row in csv.reader(io.StringIO(text, newline="")):
        assert row[0].startswith(f"'{start}")


def test_numbers_stay_numbers():
    assert to_csv(["a", "b"], [[-1.5, "-1.5"], [None, "+3e-7"]]) == "a,b\n-1.5,-1.5\n,+3e-7\n"


cells = st.text(alphabet=st.sampled_from("'=+-@\t\r\n,;\"1a \uff1d"), max_size=6) | st.text(max_size=6)


@given(st.lists(st.lists(cells, min_size=2, max_size=2), max_size=4))
def test_what_was_written_is_read_back(rows):
    assert from_csv(to_csv(["=1", "b"], rows)) == [{"=1": one, "b": other} for one, other in rows]
