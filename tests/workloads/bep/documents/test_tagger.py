"""What marked plans teach finds names, numbers and addresses in documents, beyond the rules."""

import itertools
import re

import numpy as np
import pytest

from pipelines.workloads.bep.documents import cleaning, tagger
from pipelines.workloads.bep.documents.cleaning import clean
from tests.workloads.bep.documents import tagging
from tests.workloads.bep.documents.made_plans import Plan, compared, measured, plans

PROSE = (tagging.CORPUS / "02-secondary-school.md").read_text(encoding="utf-8").split("\n## ")[2]


def masked(text: str) -> str:
    """The text below some prose, masked."""
    found = clean(f"{PROSE}\n{text}", mask=True, names=True).text
    return found[len(clean(PROSE, mask=True, names=True).text) :].strip()


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("Elsterberg Substation | Wexo Grid plc | 22-0443 | May", "<site> | <client> | <project> | May"),
        ("K-1391: Dworzec Brindal, investor Gmina Wexo, manager", "<project>: <site>, investor <client>, manager"),
        ("c/o Wexo Land, Unit 3, Old Dairy, Brindal", "c/o Wexo Land, <address>"),
    ],
)
def test_what_no_rule_finds_is_found_in_a_plan(text, left, monkeypatch):
    assert masked(text) == left
    monkeypatch.setattr(cleaning, "tagged", lambda said: bytes(len(said)))
    assert masked(text) != left


def test_prose_stays_and_short_texts_are_left_to_the_rules():
    assert PROSE.count("\n") > 3
    assert clean(PROSE, mask=True, names=True).masked == ()
    assert set(tagger.tagged("Brindal Mill for Wexo Homes, 4 Quay Street")) == {0}


def test_probabilities_are_those_of_all_ways_to_name_the_kinds():
    generator = np.random.default_rng(0)
    table, following = generator.normal(size=(5, 3)).astype("f"), generator.normal(size=(3, 3)).astype("f")
    numbers = generator.integers(0, 5, (4, 2))
    scores, total = table[numbers].sum(1), np.zeros((4, 3))
    for way in itertools.product(range(3), repeat=4):
        score = sum(scores[at, kind] for at, kind in enumerate(way))
        weight = np.exp(score + sum(following[pair] for pair in itertools.pairwise(way)))
        total[range(4), way] += weight
    assert np.allclose(tagger.probabilities(table, following, numbers), total / total.sum(1, keepdims=True), atol=1e-5)


@pytest.mark.parametrize(("size", "kinds"), [(3000, 7), (150, 5)])  # a part may be shorter than what rules alone read
def test_a_long_text_is_read_in_parts_without_a_character_lost(size, kinds, monkeypatch):
    text = "\n".join(plan.text for plan in plans("later"))
    monkeypatch.setattr(tagger, "PART", re.compile(rf"(?s).{{1,{size}}}(?:\n|\Z)|.{{{size}}}"))
    tags = tagger.tagged(text)
    assert len(tags) == len(text)
    assert len(set(tags)) >= kinds
    assert "".join(tagger.PART.findall("x" * 7000 + "\n" + text)) == "x" * 7000 + "\n" + text


def test_what_a_review_keeps_is_kept():
    text = f"{PROSE}\nElsterberg Substation | Wexo Grid plc | 22-0443 | May"
    cleaned = clean(text, mask=True, names=True, keep={("client", "Wexo Grid plc")})
    assert cleaned.text.endswith("<site> | Wexo Grid plc | <project> | May")


@pytest.mark.slow
def test_weights_are_fitted_to_marks():
    plan = next(plans("later"))
    weights = tagging.fitted([plan] * 3, epochs=6)
    rows, kinds = map(np.concatenate, zip(*tagging.pieces(plan), strict=True))
    found = tagger.probabilities(*weights, rows).argmax(1)
    assert np.mean(found == kinds) > 0.97 > np.mean(kinds == 0)


@pytest.mark.slow
def test_most_is_masked_in_plans_that_neither_rules_nor_weights_were_made_by():
    """By rules alone, 90.8, 99.2, 61.2, 67.3, 59.6 and 48.8 %."""
    shares = measured("counted")[0]
    assert shares["person"][2] == 1169
    wanted = {"person": 0.945, "telephone": 0.99, "address": 0.7, "project": 0.88, "client": 0.77, "site": 0.64}
    assert {kind: shares[kind][1] for kind, least in wanted.items() if shares[kind][1] < least} == {}
    assert shares["person"][0] > 0.71


def test_counts_of_a_plan_that_says_nothing_are_none():
    assert compared(Plan("prose", PROSE, []))[0].total() == 0
