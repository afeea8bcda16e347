"""Suggestions are clauses of the field, of several projects once, and none where nothing fits."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from common.text import longest_copied_span
from models import io
from models.plans import chains
from models.plans.characters import normalise, typed_end
from models.plans.fields import FIELDS, field_of
from models.plans.library import Document, Library
from models.plans.outline import divide
from models.plans.readers import MOST_KEPT, Readings
from models.plans.suggester import Suggester, continuation, last_sentence
from models.plans.text_writer import SAMPLED
from tests.models.plans.test_char_mixture import mixture, tokens_of, wording

ONE = """# Plan of Alder House

## 1 Roles and responsibilities

The information manager of Alder House checks each model before it is shared.

## 2 Clash detection

Clashes are tested every week by the coordinator of each team.
Container AH-22-0417 holds the results, within a tolerance of 15 mm.

## 3 Catering

Lunch is served at noon in the canteen of the site.
"""
OTHER = """# Plan of Birch Mill

## 3.4 Clash Detection Process

Clashes are tested every week by the coordinator of each team. Issues are closed within ten working days.

## 5 Security

Models are graded before they are uploaded.
"""


FOREIGN = json.loads(Path(__file__).with_name("foreign_headings.json").read_text(encoding="utf-8"))


def library(*texts):
    return Library([Document(f"{n}.md", f"project {n}", text, divide(text)) for n, text in enumerate(texts)])


def texts_of(found):
    return [clause.text for clause in found]


@pytest.mark.parametrize(
    ("heading", "field"),
    [
        ("clashDetection", "clashDetection"),
        ("4.6 Clash Detection and Resolution", "clashDetection"),
        ("Q19. What are the rules for clash detection?", "clashDetection"),
        ("APPENDIX C: FILE NAMING CONVENTION", "namingConventions"),
        ("3.2.1 Common Data Environment", "cdeWorkflow"),
        ("Part E. Working method", None),
        ("2 BIM-Ziele", "bimObjectives"),
        ("3.1 Kollisionsprüfung", "clashDetection"),
        ("Rollen und Verantwortlichkeiten", "rolesResponsibilities"),
        ("Gemeinsame Datenumgebung (CDE)", "cdeWorkflow"),
        ("Wetterbericht", None),
        ("Canteen", None),
    ],
)
def test_headings_are_about_fields(heading, field):
    assert field_of(heading) == field


@pytest.mark.parametrize("language", FOREIGN)
def test_headings_in_german_and_french_are_about_fields(language):
    """The headings were written down before the fields got their synonyms in these languages."""
    missed = [heading for heading, field in FOREIGN[language].items() if field_of(heading) != field]
    assert len(missed) <= 0.05 * len(FOREIGN[language]), missed


def test_every_field_is_found_by_its_own_words():
    for name, field in FIELDS.items():
        assert field.beginning.endswith(" ")
        assert field.question.endswith("?")
        assert field_of(name) == name


def test_the_same_clause_of_several_projects_is_one_with_its_count():
    found = Suggester(library(ONE, OTHER)).find("clashDetection", "", 9)
    assert [clause.projects for clause in found if clause.text.startswith("Clashes are tested")] == [2]
    assert len(found) == 3


def test_a_firms_own_clauses_come_before_those_of_a_base():
    own = "# 4.2 Clash detection\n\nThe site office prints three sheets every morning.\n"
    documents = [Document(f"{n}.md", f"base/{n}", text, divide(text)) for n, text in enumerate((ONE, OTHER))]
    suggester = Suggester(Library([*documents, Document("own.md", "own", own, divide(own))]))
    assert texts_of(suggester.find("clashDetection", ""))[0] == "The site office prints three sheets every morning."
    assert texts_of(suggester.find("clashDetection", "Clashes are tested "))[0].startswith("Clashes are tested")
    assert {place.project for clause in suggester.find("clashDetection", "", 9) for place in clause.places} == {
        "own",
        "base/0",
        "base/1",
    }


def test_nothing_of_another_topic_is_suggested_and_nothing_where_nothing_fits():
    suggester = Suggester(library(ONE, OTHER))
    assert all("Clash" in place.headings[-1] for c in suggester.find("clashDetection", "", 9) for place in c.places)
    assert suggester.find("backupProcedures", "") == []
    assert suggester.find("clashDetection", "The canteen serves a lunch menu ") == []
    assert texts_of(suggester.find("Security-minded approach", "")) == ["Models are graded before they are uploaded."]


def test_where_no_heading_is_about_a_field_clauses_are_that_name_it():
    text = "# Catering\n\nClash detection is weekly.\n\nLunch is served at noon in the canteen of the site.\n"
    assert texts_of(Suggester(library(text)).find("clashDetection", "")) == ["Clash detection is weekly."]


def test_names_and_numbers_of_one_project_are_slots_but_tolerances_are_not():
    (found,) = [c for c in Suggester(library(ONE, OTHER)).find("clashDetection", "", 9) if "Container" in c.text]
    assert found.text == "Container <number> holds the results, within a tolerance of 15 mm."
    (found,) = Suggester(library(ONE, OTHER)).find("rolesResponsibilities", "")
    assert found.text == "The information manager of <name> checks each model before it is shared."


def test_a_name_that_a_clause_begins_with_is_a_slot_and_a_rare_word_is_not():
    names = ("Hollowmoor Grange opens every new school.", "Temporary works depot.")
    found = library(*(f"# Project name\n\n{each}\n" for each in names))
    assert texts_of(found.clauses) == ["<name> opens every new school.", "Temporary works depot."]


def test_a_word_alone_is_no_clause():
    suggester = Suggester(library("# Software platforms\n\n- Navisworks\n- Navisworks federates models.\n"))
    assert texts_of(suggester.find("softwarePlatforms", "")) == ["Navisworks federates models."]
    assert set(texts_of(suggester.find("softwarePlatforms", "Navis"))) == {"Navisworks", "Navisworks federates models."}


def test_what_was_begun_is_continued_and_what_was_said_is_not_said_again():
    suggester = Suggester(library(ONE, OTHER))
    (first, *_) = suggester.find("clashDetection", "Issues are ")
    assert continuation(first, last_sentence("Issues are ")[1]) == ("closed within ten working days.", 0)
    assert continuation(first, "Isues") == ("Issues are closed within ten working days.", 5)
    said = "Clashes are tested every week by the coordinator of each team. "
    assert not any(text.startswith("Clashes") for text in texts_of(suggester.find("clashDetection", said, 9)))
    assert not any(text == said.strip() for text in texts_of(suggester.find("clashDetection", said.strip(), 9)))
    assert last_sentence(said) == (len(said), "")
    assert last_sentence("It ends. It goes") == (9, "It goes")


def with_text(**documents):
    model = mixture("".join(documents.values()))
    config = type(model.config)(**{**vars(model.config), "documents": {k: len(v) for k, v in documents.items()}})
    stored = type(model)(config).eval()
    state = model.state_dict() | {"text": torch.tensor(model.characters.encode("".join(documents.values()))).short()}
    stored.load_state_dict(state)
    return stored


def test_a_model_suggests_with_places_and_keeps_them_when_saved(tmp_path):
    model = with_text(one="# ab\nabc dad cab abc.\n", other="# cd\nbad cab dad.\n")
    model.common[:] = 0.7
    (found,) = model.suggest("ab", "abc ", 3)
    assert 0 < found.likelihood < 1
    assert (found.text, found.replaces, found.document, found.heading, found.line) == (
        "dad cab abc.",
        0,
        "one",
        "ab",
        2,
    )
    assert [each.text for each in model.suggest("", "abc", document="dad.\n\n# ab\n\n")] == [" dad cab abc."]
    io.save(model, tmp_path)
    assert io.load(tmp_path).suggest("ab", "abc ", 3) == [found]
    with pytest.raises(ValueError, match="n must be 1 or more"):
        model.suggest("ab", n=0)


@pytest.mark.parametrize("begun", ["b\u00adad cab ", "bad\u2026 cab ", "ba\ufb01d\u0308 cab ", "bad cab "])
def test_a_clause_replaces_what_was_typed_not_what_it_is_read_as(begun):
    (found,) = with_text(one="# ab\nabc dad cab abc.\n").suggest("ab", f"dad\u2026\n{begun}")
    assert (found.text, found.replaces) == ("Abc dad cab abc.", len(begun))


@pytest.mark.parametrize("begun", ["E\u0301tape un", "E\u0302\u0301tape un", "n\u0303", "\u1100\u1161\u11a8 a"])
def test_a_letter_with_separate_accents_is_replaced_whole(begun):
    for before in ("", "Dad. ", "cafe\u0301\n"):
        assert typed_end(before + begun, len(normalise(begun)[0])) == len(begun)


def test_a_heading_takes_nothing_from_the_text_that_a_field_may_have():
    model = with_text(one="# ab\nabc dad cab abc.\n")
    (found,) = model.suggest("ab", "bad\n" * 2500)
    assert found.text == "Abc dad cab abc."
    with pytest.raises(ValueError, match=r"a field 10,000 \(given 3, 0 and 10,001\)"):
        model.suggest("ab", "a" * 10_001)


def test_an_answer_has_the_clauses_below_its_field_or_heading_and_says_that_its_text_is_sampled():
    model = with_text(one="# ab\nabc dad cab abc.\n", other="# cd\nbad cab dad.\n")
    inputs = [
        {"field": "ab", "prompt": "abc "},
        {"prompt": "dad.\n\n# ab\n\nabc "},
        {"prompt": "abc ", "document": "dad.\n\n# ab\n\n"},
        {"prompt": "abc "},
    ]
    field, heading, document, neither = model.predict(inputs, length=3)
    assert field["suggestions"] == [vars(each) for each in model.suggest("ab", "abc ", 3)]
    for each in (field, heading, document):
        assert [way["text"] for way in each["suggestions"]] == ["dad cab abc."]
    assert "suggestions" not in neither
    assert {each["text_is"] for each in (field, heading, document, neither)} == {SAMPLED}


def test_beside_clauses_no_text_is_sampled_unless_a_setting_asks_for_it():
    model = with_text(one="# ab\nabc dad cab abc.\n", other="# cd\nbad cab dad.\n")
    clauses, none, neither = model.predict(
        [{"field": "ab", "prompt": "abc "}, {"field": "zz", "prompt": "abc "}, {"prompt": "abc "}]
    )
    assert clauses == {"suggestions": [vars(each) for each in model.suggest("ab", "abc ", 3)]}
    assert none["suggestions"] == []
    assert none["text_is"] == neither["text_is"] == SAMPLED
    (asked,) = model.predict([{"field": "ab", "prompt": "abc "}], seed=1)
    assert asked["suggestions"] == clauses["suggestions"]
    assert (bool(asked["text"]), asked["text_is"]) == (True, SAMPLED)


def test_continuations_are_judged_as_they_would_be_read():
    model, tokens = mixture(wording(0)), tokens_of(wording(1, 50))
    for adapting in (False, True):
        reader = model.reader(adapting=adapting)
        reader.skim(tokens[1:])
        ways = [tokens_of(each)[1:].tolist() for each in ("abc dad. cab", "d")]
        read = model.reader(adapting=False) if not adapting else None
        for way, judged in zip(ways, reader.judge(ways), strict=True):
            if read is not None:
                own = read.fork()
                own.skim(tokens[1:])
                assert judged.tolist() == pytest.approx(
                    own.read(torch.tensor(way).numpy())[torch.arange(len(way)), way].tolist(), abs=1e-4
                )
            assert judged[0].item() == pytest.approx(reader.ahead()[way[0]].item(), abs=1e-4)


def test_a_document_is_read_on_as_it_grows_and_the_oldest_is_forgotten(monkeypatch):
    model, skimmed = mixture(wording(0)), []
    readings = Readings(model.reader, model.characters)
    monkeypatch.setattr("models.plans.readers.MixtureReader.skim", lambda reader, tokens: skimmed.append(len(tokens)))
    assert not readings.read("abc dad", 3)
    assert readings.read("abc dad", 4)
    readings.reader("abc dad cab")
    assert skimmed == [3, 4, 4]
    monkeypatch.setattr("models.plans.readers.MOST_KEPT", 5)
    readings.read("bad")
    assert list(readings.readers) == ["bad"]
    assert MOST_KEPT > 400_000


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


def test_the_library_is_made_with_the_first_reading_not_with_the_first_suggestion():
    model = with_text(one="# ab\nabc dad cab.\n")
    model.read_ahead("abc", 4)
    assert "suggester" in vars(model)
