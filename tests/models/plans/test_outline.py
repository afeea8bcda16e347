"""Documents are divided into clauses below headings as real plans write them."""

import numpy as np
import pytest

from models.plans.outline import HEADER, HEADING, ITEM, ROW, SENTENCE, divide, last_heading


def clauses(text):
    """[(kind, headings, header, clause)]."""
    rows, found = divide(text), []
    for begin, end, above, kind in rows:
        if kind in (HEADING, HEADER):
            continue
        path, header = [], None
        while above >= 0:
            first, last, over, of = rows[above]
            if of == HEADER:
                header = text[first:last]
            else:
                path.insert(0, text[first:last])
            above = over
        found.append((kind, " > ".join(path), header, text[begin:end]))
    return found


def test_markdown_numbers_and_plain_lines_are_headings():
    text = """# Plan

## 2 Clash detection

Clashes are tested weekly, e.g. on Monday. Results are grouped.

## 4.1 Handover requirements
Record models are handed over

# Appendix B: Security

Standards

Data standards

Information follows ISO 19650.
"""
    assert clauses(text) == [
        (SENTENCE, "Plan > 2 Clash detection", None, "Clashes are tested weekly, e.g. on Monday."),
        (SENTENCE, "Plan > 2 Clash detection", None, "Results are grouped."),
        (SENTENCE, "Plan > 4.1 Handover requirements", None, "Record models are handed over"),
        (SENTENCE, "Appendix B: Security > Standards > Data standards", None, "Information follows ISO 19650."),
    ]


def test_numbers_without_marks_are_levels():
    text = "1 Standards\n\n1.2 Naming\n\nNames are unique.\n\n2 Security\n\nModels are graded.\n"
    assert [(path, text) for _, path, _, text in clauses(text)] == [
        ("1 Standards > 1.2 Naming", "Names are unique."),
        ("2 Security", "Models are graded."),
    ]


def test_items_and_labels():
    text = """Scope

Project scope: All works. Nothing is left out.

- Included: the hall
- the yard
1. Each model has an owner.
2. Each owner has a deputy.

A paragraph of its own, which no label is above.
"""
    assert clauses(text) == [
        (SENTENCE, "Scope > Project scope", None, "All works."),
        (SENTENCE, "Scope > Project scope", None, "Nothing is left out."),
        (ITEM, "Scope > Project scope > Included", None, "the hall"),
        (ITEM, "Scope > Project scope", None, "the yard"),
        (ITEM, "Scope > Project scope", None, "Each model has an owner."),
        (ITEM, "Scope > Project scope", None, "Each owner has a deputy."),
        (SENTENCE, "Scope", None, "A paragraph of its own, which no label is above."),
    ]


@pytest.mark.parametrize("label", ["Project scope:", "**Project scope:**", "**Project scope.**", "**Project scope**:"])
def test_labels_in_bold_are_labels_too(label):
    assert clauses(f"{label} All works.\n") == [(SENTENCE, "Project scope", None, "All works.")]


@pytest.mark.parametrize("edge", ["| ", ""])
def test_rows_of_tables_have_their_header(edge):
    end = edge[::-1]
    rule = "|---|---|---|\n" if edge else ""
    text = f"# Roles\n\n{edge}Function | Held by | Duties{end}\n{rule}{edge}Lead | Us | Signs{end}\n"
    assert clauses(text) == [(ROW, "Roles", "Function | Held by | Duties", "Lead | Us | Signs")]


def test_a_row_of_two_cells_stands_below_its_first():
    text = "Field | Answer\nClash detection | Weekly. By us.\n"
    assert [(path, text) for _, path, _, text in clauses(text)] == [
        ("Clash detection", "Weekly."),
        ("Clash detection", "By us."),
    ]


def test_the_last_heading_of_a_text():
    assert last_heading("# One\n\nText.\n\n## 1.1 Two\n\nMore text. And") == "One > 1.1 Two"
    assert last_heading("# One\n\n## Two\n") == "One > Two"
    assert last_heading("nothing of the kind, only a sentence.") == ""


@pytest.mark.parametrize("text", ["", "\n\n", "|", "|---|", "#", "# \n", "1.\n", "- \n- ", "**", "a | b\n", "Label: "])
def test_any_text_can_be_divided(text):
    rows = divide(text)
    assert rows.shape[1] == 4
    assert (rows[:, 2] < np.arange(len(rows))).all()


def test_headings_labels_and_sentences_may_begin_with_an_accent():
    text = "4.2 \u00dcbergabe an den Betreiber\nDie Modelle liegen vor. \u00c4nderungen sind zu melden.\n"
    text += "\u00c9tendue du projet: Tout.\n"
    assert clauses(text) == [
        (SENTENCE, "4.2 \u00dcbergabe an den Betreiber", None, "Die Modelle liegen vor."),
        (SENTENCE, "4.2 \u00dcbergabe an den Betreiber", None, "\u00c4nderungen sind zu melden."),
        (SENTENCE, "4.2 \u00dcbergabe an den Betreiber > \u00c9tendue du projet", None, "Tout."),
    ]
    assert clauses("1.2 \u041c\u043e\u0434\u0435\u043b\u0438\n\n\u0414\u0430. \u0418 \u0434\u043e\u043c.\n") == [
        (SENTENCE, "1.2 \u041c\u043e\u0434\u0435\u043b\u0438", None, "\u0414\u0430."),
        (SENTENCE, "1.2 \u041c\u043e\u0434\u0435\u043b\u0438", None, "\u0418 \u0434\u043e\u043c."),
    ]
