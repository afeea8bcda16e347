"""Suggestions: passages of stored documents and a model's own text, ranked by the keystrokes that they save."""

import numpy as np
import pytest
import torch

from common.text import longest_copied_span
from models import io
from models.plans import chains
from models.plans.continuation_tree import Branches
from models.plans.stored_passages import Passages
from models.plans.suggester import Suggester
from tests.models.plans.test_char_mixture import mixture, tokens_of, wording

ONE = """# 1 Roles
The manager of Alder House checks the model. The client is told of 14 faults.
# 2 Clash detection
Clashes are tested every week by the team at Alder House with a tolerance of 15 mm.
"""
OTHER = """# 3 Clash detection
Clashes are tested every month by the team at Birch Mill with a tolerance of 25 mm.
- The team
"""


def passages():
    return Passages({"one": ONE, "other": OTHER})


def test_passages_agree_in_words_where_names_and_numbers_differ():
    text = "Clashes are tested every day by the team at Cedar Yard with "
    found = passages().after(text, "# Clash detection", 5, {})
    assert (found[0].sure, found[0].whole) == ("a tolerance of ", "a tolerance of <number> mm.\n")
    assert (found[0].document, found[0].heading, found[0].line) == ("one", "# 2 Clash detection", 4)
    assert sum(each.whole == found[0].whole for each in found) == 1  # the other document says the same


def test_slots_are_filled_from_the_document_at_hand():
    stored = passages()
    own = stored.slots("The manager of Cedar Yard signs. There is a tolerance of 40 mm.")
    (first, *_) = stored.after("It holds that the ", "", 5, own)
    assert first.whole == "manager of Cedar Yard checks the model. "
    (first, *_) = stored.after("It holds that the ", "", 5, {})
    assert (first.sure, first.whole) == ("manager of ", "manager of <name> checks the model. ")


def test_a_word_that_was_begun_is_completed():
    (first, *_) = passages().after("and the mana", "", 5, {})
    assert first.sure == "ger of "
    assert not passages().after("and the manu", "", 5, {})


@pytest.mark.parametrize(
    ("field", "heading"),
    [("clashDetection", "# 2 Clash detection"), ("Roles", "# 1 Roles"), ("costs", "costs"), ("", "")],
)
def test_a_field_is_found_by_the_words_of_its_heading(field, heading):
    assert passages().heading(field) == heading


def test_branches_have_the_probabilities_of_the_model():
    model, tokens = mixture(wording(0)), tokens_of(wording(1, 50))
    reader = model.reader(adapting=False)
    reader.skim(tokens[1:])
    branches = Branches(reader)
    way = tokens_of("abc dad. cab")[1:].tolist()
    (reached,) = branches.follow([way])
    read = model.reader(adapting=False).read(np.array([*tokens[1:], *way]))[-len(way) :]
    expected = sum(float(read[place, token]) for place, token in enumerate(way))
    assert reached.log_prob == pytest.approx(expected, abs=1e-4)
    assert branches.way(reached) == way
    branches.step(way[0])
    assert branches.way(reached) == way[1:]
    branches.grow(20)
    for branch, _ in branches.walk():
        assert branch.log_prob <= branch.parent.log_prob


def test_what_is_suggested_saves_most_keystrokes_together():
    model = mixture("abcd dab. " * 3)
    model.common[:] = 1.0
    reader = model.reader(adapting=False)
    reader.skim(tokens_of("abcd dab. ")[1:])
    suggester = Suggester(reader, None, "abcd dab. ", "")
    chosen = suggester.choices(3)
    saved = suggester.saved()
    best = max(sum(saved.get(each, 0) for each in _up(branch, suggester)) for branch in saved)
    assert sum(saved.get(each, 0) for each in _up(chosen[0].branch, suggester)) == pytest.approx(best)
    assert model.characters.signs(chosen[0].tokens).startswith("abcd dab. "[:4])
    assert len({tuple(each.tokens) for each in chosen}) == len(chosen)


def _up(branch, suggester):
    while branch is not suggester.branches.root:
        yield branch
        branch = branch.parent


def with_text(**documents):
    model = mixture("".join(documents.values()))
    config = type(model.config)(**{**vars(model.config), "documents": {k: len(v) for k, v in documents.items()}})
    stored = type(model)(config).eval()
    state = model.state_dict() | {"text": torch.tensor(model.characters.encode("".join(documents.values()))).short()}
    stored.load_state_dict(state)
    return stored


def test_a_model_suggests_with_sources_and_keeps_them_when_saved(tmp_path):
    model = with_text(one="# ab\nabc dad cab abc.\n", other="# cd\nbad cab dad.\n")
    model.common[:] = 0.7
    suggested = model.suggest("ab", "abc ", 3)
    assert suggested
    assert all(0 < each.likelihood < 1 for each in suggested)
    best = next(each for each in suggested if each.document)
    assert (best.text, best.document, best.heading, best.line) == ("dad cab abc.", "one", "# ab", 2)
    io.save(model, tmp_path)
    assert io.load(tmp_path).suggest("ab", "abc ", 3) == suggested
    with pytest.raises(ValueError, match="n must be 1 or more"):
        model.suggest("ab", n=0)


def test_a_field_is_suggested_for_below_its_heading_and_the_document(monkeypatch):
    model, given = with_text(one="# ab\nabc dad cab abc.\n"), []

    class Noting(Suggester):
        def __init__(self, reader, passages, text, heading):
            given.append((text, heading))
            super().__init__(reader, passages, text, heading)

    monkeypatch.setattr("models.plans.char_mixture.Suggester", Noting)
    model.suggest("ab", "abc ", 1, document="dad.\n")
    model.suggest("", "abc", 1)
    assert given == [("dad.\n\n# ab\n\nabc ", "# ab"), ("abc", "")]


def test_generated_text_copies_no_fifty_characters():
    text = "".join(np.random.default_rng(0).choice(list("abcd .#"), 150))
    model, storing_none = with_text(one=text), mixture(text)
    for each in (model, storing_none):  # with the first chain alone, which knows the text by heart
        for table in each.weights():
            table.zero_()
        each.common[:, 1 : len(chains.ORDERS) + 1] = 1.0
    assert storing_none.complete(text[:30], 60, temperature=0) == text[30:90]
    written = model.complete(text[:30], 60, temperature=0)
    assert len(longest_copied_span(written, text)) == 49
