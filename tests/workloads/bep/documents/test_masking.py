"""Of a labelled set, what has to be masked is, kind by kind, and little else."""

import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from pipelines.workloads.bep.documents.cleaning import clean
from pipelines.workloads.bep.documents.masking import ADDRESS, EMAIL, IBAN, NAME, SECRET, TELEPHONE, URL

HERE = Path(__file__).parent
KINDS = ("name", "email", "url", "telephone", "iban", "path", "ip", "key")
MASKED = re.compile("|".join((EMAIL, IBAN, NAME, SECRET, TELEPHONE, ADDRESS, URL)))


@cache
def labelled() -> list[tuple[str, str]]:
    lines = (HERE / "labelled.txt").read_text(encoding="utf-8").splitlines()
    return [tuple(line.split(" ", 1)) for line in lines if line and not line.startswith("#")]


@cache
def counts() -> tuple[Counter, Counter, list[str]]:
    """({kind: labelled}, {kind: missed}, what was masked although it should stay, or masked in part)."""
    total, missed, wrong = Counter(), Counter(), []
    for kind, line in labelled():
        plain = re.sub("[«»]", "", line)
        found = clean(plain, mask=True, names=True).text
        # What stays of the line, between the parts that are masked, in its order.
        kept = [re.escape(part) for part in re.split("«[^»]*»", line)]
        for number, target in enumerate(re.findall("«([^»]*)»", line)):
            total[kind] += 1
            if target in found or any(word in found for word in target.split() if len(word) > 3):
                missed[kind] += 1
                wrong.append(f"{kind}: {target} ({number}) in {found}")
        if not re.fullmatch(f"(?:{MASKED.pattern})+".join(kept), found) and target_free(kind, line, found):
            wrong.append(f"too much: {found}")
            missed["too much"] += 1
    return total, missed, wrong


def target_free(kind: str, line: str, found: str) -> bool:
    """Whether nothing labelled was missed, so that what differs was masked wrongly."""
    return not any(target in found for target in re.findall("«([^»]*)»", line))


@pytest.mark.parametrize("kind", KINDS)
def test_of_each_kind_at_most_two_in_a_hundred_are_missed(kind):
    total, missed, wrong = counts()
    assert total[kind] >= 11
    assert missed[kind] <= 0.02 * total[kind], "\n".join(wrong)


def test_little_is_masked_that_should_stay():
    _, missed, wrong = counts()
    assert missed["too much"] <= 0.02 * len(labelled()), "\n".join(wrong)


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("Account GB82 WEST 1234 5698 7654 32 is ours.", f"Account {IBAN} is ours."),
        ("Container GB83 WEST 1234 5698 7654 32 is ours.", None),  # its check digits are wrong
        ("Clause 4.2.1.32 holds.", f"Clause {ADDRESS} holds."),
        ("Clause 4.2.1.31 holds.", None),
        ("Ring 020 7946 0123 or 7946 0124 or 7946 0125.", f"Ring {' or '.join([TELEPHONE] * 3)}."),
        ("Ask Dr. Wu first. Wu knows.", f"Ask {NAME} first. Wu knows."),  # too short to be found alone
    ],
)
def test_what_only_looks_like_a_number_or_a_name_stays(text, masked):
    assert clean(text, mask=True, names=True).text == (masked or text)


@pytest.mark.parametrize(
    "text",
    [
        "| Name | Role |\n| Emma Johnson | Lead |\n| Oliver Thompson | Lead |\n(Emma Johnson, Oliver Thompson) agree.",
        "Project manager: Emma Johnson\nBIM Manager: Oliver Thompson\nBoth (Emma Johnson, Oliver Thompson) decide.",
        "Prepared by: Robert Johnson (Emma Thompson)\nLater Emma Thompson checks.",
    ],
)
def test_persons_in_brackets_that_stand_elsewhere_too_are_no_firms(text):
    found = clean(text, mask=True, names=True).text
    assert not re.search("Emma|Oliver|Johnson|Thompson", found), found


def test_a_firm_in_brackets_behind_a_person_stays():
    found = clean("Attendees: Emma Johnson, Robert Smith (Foster Halcrow)\n", mask=True, names=True).text
    assert "(Foster Halcrow)" in found
    assert "Smith" not in found


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Freigabe: Frau Özlem Karabulut\n\nVerteiler: Hohenau, Sündermann, Karabulut, Ablage", "Karabulut"),
        ("MEP Lead: Nguyễn Thị Hồng\n\nThe strategy by Hong was accepted.", "Hong"),
        ("BIM Manager: Kwame Asante-Boateng\n\nAction KAB: naming convention", "KAB"),
    ],
)
def test_a_known_person_is_found_in_a_row_of_surnames_without_accents_and_by_all_initials(text, name):
    assert name not in clean(text, mask=True, names=True).text


def test_rows_of_surnames_leave_what_follows_them():
    found = clean("Rückfragen: Witold Górski, Tel. 0341/9876543", mask=True, names=True).text
    assert ", Tel. " in found
    assert "Górski" not in found


@pytest.mark.parametrize(
    "text",
    [
        "Name: Laura Berg Group Director\nThe models are uploaded by Laura Berg.",
        "Name: Laura Berg Engineering Manager\nThe models are uploaded by Laura Berg.",
        "Helen Carter Architects lead the design.\nBIM Manager: Helen Carter\nHelen Carter will approve it.",
        "| Role | Name | Company |\n| Architect | Peter Zumthor | Peter Zumthor Architekten |",
    ],
)
def test_a_person_whose_name_a_firm_or_a_role_goes_on_from_is_masked(text):
    found = clean(text, mask=True, names=True).text
    assert not re.search("uploaded by Laura|Manager: Helen|Peter Zumthor \\|", found), found
