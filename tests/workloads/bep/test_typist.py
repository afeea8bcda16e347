"""A simulated typist accepts what is right and longest, and its keystrokes are counted."""

import numpy as np
import pytest

from models.plans.characters import Characters
from pipelines.workloads.bep import data, typist
from tests.models.plans.test_suggester import with_text

SIGNS = Characters("abcd .,")


class Always:
    """Suggests the same whatever was typed."""

    def __init__(self, *suggestions):
        self.suggestions, self.typed = [SIGNS.encode(each) for each in suggestions], []

    def choose(self):
        return self.suggestions

    def type(self, tokens):
        self.typed += tokens


@pytest.mark.parametrize(
    ("suggestion", "wanted", "taken"),
    [
        ("ab cd. da", "ab cd. da", 9),  # all of it
        ("ab cd. da", "ab cd. dd", 7),  # up to the punctuation
        ("ab cd. da", "ab cc. da", 3),  # a word
        ("ab cd. da", "ac", 0),
        ("ab cd", "ab cdd", 5),
        ("", "a", 0),
    ],
)
def test_a_key_takes_over_what_is_right_and_longest(suggestion, wanted, taken):
    assert typist.accepted(SIGNS.encode(suggestion), SIGNS.encode(wanted), SIGNS.by_id) == taken


def test_keystrokes_are_characters_and_accepted_suggestions():
    wanted = SIGNS.encode("ab ab dd")
    typing = Always("ab cd", "ab d")
    assert typist.keystrokes([typing], wanted, SIGNS) == 3  # a word, all of a suggestion, and a character
    assert typing.typed == wanted
    assert typist.keystrokes([Always()], wanted, SIGNS) == len(wanted)


def test_pieces_are_beginnings_of_prose_below_their_headings():
    prose = "The model is checked by the team before it is shared with anybody, and again at each stage."
    texts = [f"# 1 Clash detection\n\n{prose}\n\n| a table | is none |\n\n## Roles\n{prose} {prose}\n", "nothing\n"]
    found = typist.pieces(texts, 1000)
    assert [texts[each.document][each.begin : each.end] for each in found] == [prose, f"{prose} {prose}"[:150]]
    assert [each.heading for each in found] == ["# 1 Clash detection", "## Roles"]
    assert len(typist.pieces(texts, 150)) == 1


def test_what_is_typed_is_measured_for_every_kind_of_suggestions(monkeypatch):
    monkeypatch.setattr(typist, "PIECE", 12)
    sentence = "abc dad cab bad abc dad cab bad abc dad cab bad abc dad cab bad abc dad cab bad abc."
    model = with_text(one=f"# ab\n{sentence}\n")
    model.common[:] = 0.7
    held_out = data.Text("held", np.array(model.characters.encode(f"# ab\n{sentence}\n{sentence}\n")))
    summary = typist.measure(model, [held_out], 24, 0)
    rows = {row["suggestions by"]: row["keystrokes saved, %"] for row in summary["typing"]}
    assert list(rows) == list(typist.systems(model))
    assert summary["keystrokes_saved"] == pytest.approx(rows[typist.OWN] / 100)
    assert summary["keystrokes_saved"] > 0.5  # the sentence is known by heart
    assert summary["keystrokes_characters"] == 24
    others = [saved for name, saved in rows.items() if name != typist.OWN]
    assert summary["keystrokes_gain_percent"] == pytest.approx(rows[typist.OWN] - max(others))
    assert typist.measure(model, [held_out], 24, 0) == summary
    assert typist.measure(model, [held_out], 0, 0) == {}
