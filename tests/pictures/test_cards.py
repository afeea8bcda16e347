"""The picture of a form shows what an evaluation suggested, and where nothing fits."""

from common.foreign_text import to_csv
from tests.pictures import cards


def test_a_form_is_drawn_of_suggestions_and_of_fields_that_have_none(tmp_path):
    names = ("rank", "field", "question", "suggestion", "document", "line")
    rows = [(0, name, "What?", "", "", "") for name in cards.FORM[1:]]
    (tmp_path / "evaluations").mkdir()
    suggested = to_csv(names, [(1, cards.FORM[0], "What?", "A pier.", "plan.md", 7), *rows])
    (tmp_path / "evaluations/test.suggestions.csv").write_text(suggested)
    drawn = cards.plan(tmp_path)
    assert "plan.md, line 7" in drawn
    assert drawn.count("nothing of yours fits") == len(rows)
