"""Text that others wrote: on a terminal, and in a spreadsheet."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.foreign_text import from_csv, other_encoding, printable, to_csv


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


def test_an_encoding_is_other_than_utf_8_only_where_no_letter_is_utf_8(tmp_path):
    long = "a" * (2**20 - 1)  # the next letter's bytes lie in two pieces of what is read
    path = tmp_path / "text"
    for data, encoding in (
        (b"", None),
        (b"plain", None),
        ("é".encode(), None),
        ("\ufeffplain".encode(), None),
        ((long + "é").encode(), None),
        ("é".encode("cp1252") + long.encode(), "cp1252"),
        ((long + "é").encode("cp1252"), "cp1252"),
        ((long + "aé").encode("cp1252"), "cp1252"),
        ("é".encode("cp1252") + "é".encode(), None),
        ("plain".encode("utf-16"), "utf-16"),
        ("\ufeffplain".encode("utf-16-be"), "utf-16"),
    ):
        path.write_bytes(data)
        assert other_encoding(path) == encoding, data[-9:]
