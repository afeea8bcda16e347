"""Prose stays as it is written; glyphs, page furniture, tables of contents and addresses do not."""

import time
import unicodedata
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.plans.characters import MASKS, Characters
from pipelines.workloads.bep.documents.cleaning import (
    clean,
    join_lines,
    map_glyphs,
    normalise,
    remove_contents,
    remove_headers_and_footers,
    tidy,
)
from pipelines.workloads.bep.documents.masking import EMAIL, TELEPHONE, URL
from tests.properties import examples

PROSE = "The BIM Execution Plan follows ISO 19650-2:2018.\n\nRoles:\n- Lead\n- Task team | 5 m² at 1:500"


def test_prose_is_left_as_it_is():
    cleaned = clean(PROSE, mask=True)
    assert cleaned.text == PROSE
    assert not any([*cleaned.counts.values(), *cleaned.masked])


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("a\r\nb\rc\vd\u2028e", "a\nb\nc\nd\ne"),
        ("a\u2029b", "a\n\nb"),
        ("con\ufb01rm 1\u00a0000\u202fkN", "confirm 1 000 kN"),
        ("e\u0301", "\u00e9"),
        ("20 m\u00b2, 3\u33a5, \u00bd, \u2122", "20 m\u00b2, 3m\u00b3, \u00bd, \u2122"),
        ("Scope\u2026", "Scope..."),
        ("soft\u00adhyphen \ufeffand\u200b\x07 bell", "softhyphen and bell"),
        ("non\u2011breaking \u2013 dash \u2212 \u201equoted\u201c, it\u2019s", 'non-breaking - dash - "quoted", it\'s'),
        ("caf\u00e9 \u00b4 \u00a8 STRASSE", "caf\u00e9 \u00b4 \u00a8 STRASSE"),
        ("\uff21\uff22 \u2460", "AB 1"),
        ("tab\tand\fpage", "tab\tand\fpage"),
    ],
)
def test_characters_have_one_form_and_keep_case_and_meaning(text, normal):
    assert normalise(text)[0] == normal


@settings(deadline=None, max_examples=examples(200))
@given(st.text())
def test_normal_text_and_clean_text_stay_the_same(text):
    normal, _ = normalise(text)
    assert normalise(normal) == (normal, 0)
    cleaned = clean(text, mask=False).text
    assert not {unicodedata.category(character) for character in cleaned} & {"Co", "Cs", "Cn", "Cf"}
    assert cleaned == tidy(cleaned)
    assert "\f" not in cleaned


@pytest.mark.parametrize(
    ("text", "mapped", "count"),
    [
        ("\u2022 one\n\u25aa\ttwo\n  \u27a2three\n\u221a four", "- one\n- two\n- three\n- four", 4),
        ("\uf0b7 one\n\uf0a7\ttwo", "- one\n- two", 4),  # each is a glyph first and then a bullet
        ("\u2022\nbelow", "- below", 1),
        ("* one\n\u2013 two", "- one\n- two", 2),
        ("*bold* and 3 * 4 \u2013 or a \u2022 b", "*bold* and 3 * 4 \u2013 or a \u2022 b", 0),
        ("LOD \uf0fc | \uf0fb | a \uf0e0 b", "LOD \u2713 | \u2717 | a \u2192 b", 3),
        ("\ue000 mask \ue123\U000f0000", " mask ", 3),
        ("\u25a1 | open", "\u25a1 | open", 0),
    ],
)
def test_bullets_and_glyphs_of_symbol_fonts_are_mapped(text, mapped, count):
    assert map_glyphs(text) == (mapped, count)


def pages(count, top="Acme BEP rev {n}", bottom="Confidential\nPage {n} of {count}"):
    bodies = [f"Section about {chr(97 + n) * 4}\nprose {chr(97 + n)}\nmore prose {chr(97 + n)}" for n in range(count)]
    return "\f".join(
        f"{top}\n{body}\n{bottom}\n".format(n=n, count=count) for n, body in enumerate(bodies, 1)
    ), "\n".join(bodies)


def test_lines_that_recur_at_the_edges_of_pages_are_removed():
    text, bodies = pages(4)
    cleaned = clean(text, mask=True)
    assert cleaned.text == bodies
    assert cleaned.counts["header_and_footer_lines"] == 12


def test_odd_and_even_pages_may_have_headers_of_their_own():
    odd, even = (f"{side} header" for side in ("Odd", "Even"))
    text = "\f".join(f"{(even, odd)[n % 2]}\nbody {chr(97 + n) * 3}\n{n}" for n in range(10))
    assert remove_headers_and_footers(text)[0] == "\n".join(f"body {chr(97 + n) * 3}" for n in range(10))


def test_a_chapters_running_title_beside_the_page_number_is_removed_and_chapters_that_count_as_pages_do_stay():
    titles = [f"Chapter {n // 3}. {'abcdef'[n // 3] * 4}" for n in range(18)]  # each on 3 of 18 pages
    lines = [f"{titles[n]} {n + 41}" if n % 2 else f"{n + 41} {titles[n]}" for n in range(18)]
    bodies = [f"body {chr(97 + n) * 3}" for n in range(18)]
    text = "\f".join(f"{line}\n{body}" for line, body in zip(lines, bodies, strict=True))
    assert remove_headers_and_footers(text)[0].count("Chapter") == 6  # where a title stands alone on its side
    chapters = "\f".join(f"{n} Part {chr(96 + n) * 3}\nbody {chr(96 + n)}" for n in range(1, 9))
    assert remove_headers_and_footers(chapters) == (chapters.replace("\f", "\n"), 0)


@pytest.mark.parametrize("number", ["Page 7", "page 7 of 9", "- 7 -", "7 / 9", "7 of 9", "p. 7"])
def test_numbers_of_two_pages_are_known_by_their_form(number):
    text = f"first\n{number}\fsecond\n{number}"
    assert remove_headers_and_footers(text) == ("first\nsecond", 2)


def test_lines_that_recur_within_pages_or_on_two_of_them_stay():
    text = "\f".join(
        f"{letter}{letter}\nab {letter}\ncd {letter}\nThe same line.\nef {letter}\ngh {letter}\n{letter}ij"
        for letter in "abcdefgh"
    )
    assert remove_headers_and_footers(text) == (text.replace("\f", "\n"), 0)
    twice = "Same\none\ftwo\nmore\fSame\nthree\ffour\nfive"
    assert remove_headers_and_footers(twice) == (twice.replace("\f", "\n"), 0)


def test_a_text_without_pages_loses_only_what_says_page_of_pages():
    text = "Acme\n7\nAcme\n- 8 -\nAcme\nPage 3 of 12\nThe 3 of 12"
    assert remove_headers_and_footers(text) == ("Acme\n7\nAcme\n- 8 -\nAcme\nThe 3 of 12", 1)


@pytest.mark.parametrize(
    ("text", "kept", "count"),
    [
        ("Contents\n1 Scope ........ 3\n2 Roles . . . . . 12\nA Annex.....iv\nText.", "Text.", 4),
        ("TABLE OF CONTENTS\n\n1 Scope\t3\n\n2 Roles\t3\n\n3 CDE\t14\n\nText.", "Text.", 4),
        ("Level\t1\nLevel\t3\nText", "Level\t1\nLevel\t3\nText", 0),
        ("Rooms\t30\nDoors\t12\nStairs\t4", "Rooms\t30\nDoors\t12\nStairs\t4", 0),
        ("Contents\nof the container are checked.", "Contents\nof the container are checked.", 0),
        ("Name ........................", "Name ........................", 0),
        ("He waits ... 3 days ...\nversion 1.2.3.4", "He waits ... 3 days ...\nversion 1.2.3.4", 0),
    ],
)
def test_tables_of_contents_go_and_tables_stay(text, kept, count):
    found, removed = remove_contents(text)
    assert (tidy(found), removed) == (tidy(kept), count)


def test_paragraph_breaks_stay_and_blanks_are_single():
    assert tidy("  a \t b \n c\n\n\n\n d\n \n\te ") == "a b\nc\n\nd\n\ne"


WRAPPED = """\
The information manager is responsible for the com-
mon data environment and checks each container that
a task team shares. Errors go back.
1 Roles
The lead appointed party agrees the plan with those.
- The first item of a list which goes on over a line
and ends.
- The second item"""


def test_lines_that_the_paper_ended_are_joined():
    assert join_lines(WRAPPED) == (
        "The information manager is responsible for the common data environment and checks each container that "
        "a task team shares. Errors go back.\n1 Roles\nThe lead appointed party agrees the plan with those.\n"
        "- The first item of a list which goes on over a line and ends.\n- The second item",
        3,
    )
    assert join_lines("") == ("", 0)


def test_only_a_text_that_is_wrapped_has_lines_joined():
    assert clean(WRAPPED, mask=True).text == WRAPPED
    assert clean(WRAPPED, mask=True, wrapped=True).counts["lines_joined"] == 3


@pytest.mark.parametrize("odd", [".", ". ", "a@", "1 ", "a.b", "\t1", "x", "a'", "+1", "www."])
def test_odd_lines_take_little_time(odd):
    """What makes regular expressions go back and forth, in the sizes that documents have."""
    begin = time.process_time()
    clean(odd * 50_000, mask=True, wrapped=True)
    assert time.process_time() - begin < 5


@pytest.mark.parametrize(
    "number",
    [
        "+44 (0)20 7946 0123",
        "+44 20 7946 0123",
        "+4930123456",
        "+39 02 1234567",
        "+1 555-010-0199",
        "+44 20 7946 0123/24/25/26",
        "0044 20 7946 0123",
        "020 7946 0123",
        "(020) 7946 0123",
        "01632 960123",
        "01632960123",
        "06 12 34 56 78",
        "030/1234567",
        "555-010-0199",
        "(555) 010-0199",
        "1-800-555-0199",
    ],
)
def test_telephone_numbers_are_masked(number):
    for around in ("{}", "Call {}.", "Ada Lead | {} | Leeds", "({})", "T: {}, daily"):
        cleaned = clean(around.format(number), mask=True)
        assert cleaned.text == around.format(TELEPHONE)
        assert [each.kind for each in cleaned.masked] == ["telephone"]


@pytest.mark.parametrize("label", ["Tel: ", "Telephone no. : ", "Mobile | ", "Fax.: ", "phone number: "])
def test_after_a_label_a_shorter_number_is_one(label):
    assert clean(f"{label}7946-0123", mask=True).text == f"{label}{TELEPHONE}"


@pytest.mark.parametrize(
    "text",
    [
        "ISO 19650-2:2018",
        "BS EN ISO 12006-2:2015",
        "PAS 1192-2",
        "scale 1:500 or 1:1250",
        "2024-03-15",
        "15.03.2024",
        "15/03/2024",
        "2018-2019",
        "12 345 678 m2",
        "GBP 1 250 000",
        "1,250,000",
        "PRJ01-ABC-ZZ-01-DR-A-00123",
        "00123-AB",
        "0101-0002-0003",
        "20240315_1200.ifc",
        "01632960123-A or DOC-01632960123",
        "01632960123.ifc, A/01632960123, #01632960123",
        "555-010-0199-REV2 and X-555-010-0199",
        "020 7946 0123-A",
        "01632 9601234 5678901",
        "Ss_25_10_20",
        "level +105.250 m",
        "51.507351, -0.127758",
        "10.0.19045",
        "stages 0 1 2 3 4 5 6 7",
        "LOD 300/350",
        "mobile 3 of 4",
        "model.v2.ifc",
        "PRJ-ORG-XX-M3.rvt, readme.md and COBie.xlsx",
        "e.g. this.that",
        "@mention and a@b",
        "http is a protocol, www a net",
    ],
)
def test_near_misses_are_not_masked(text):
    assert clean(text, mask=True).text == text


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("ada.b+c@firm.co.uk", EMAIL),
        ("<mailto:ada@firm.com>.", f"<{EMAIL}>."),
        ("J. O'Neil, j.o'neil@x-y.org, and Z@Q.COM", f"J. O'Neil, {EMAIL}, and {EMAIL}"),
        ("https://cde.firm.com/a?b=c#d.", f"{URL}."),
        ("[guide](https://firm.com/z), (www.firm.com)", f"[guide]({URL}), ({URL})"),
        ("at firm.co.uk/contact or sub.firm.com.au.", f"at {URL} or {URL}."),
        ("ftp://host/file.ifc|next", f"{URL}|next"),
    ],
)
def test_addresses_are_masked(text, masked):
    cleaned = clean(text, mask=True)
    assert cleaned.text == masked
    assert Counter(each.kind for each in cleaned.masked) == Counter(email=masked.count(EMAIL), url=masked.count(URL))


def test_without_masking_addresses_stay():
    text = "ada@firm.com, 020 7946 0123, www.firm.com"
    cleaned = clean(text, mask=False)
    assert (cleaned.text, cleaned.masked) == (text, ())


def test_a_mask_is_one_token_and_its_name_in_a_text_is_not():
    characters = Characters(sorted(set("<emailtphonur> ")))
    masked = clean("<email> ada@firm.com <url> www.firm.com", mask=True).text
    ids = characters.encode(masked)
    assert [number for number in ids if number in MASKS.values()] == [MASKS[EMAIL], MASKS[URL]]
    assert len(ids) == len("<email> x <url> x")
    assert characters.decode(ids) == "<email> <email> <url> <url>"


def test_a_text_that_has_the_private_characters_cannot_spell_a_mask():
    assert clean(f"a{EMAIL}b{TELEPHONE}c{URL}d", mask=True).text == "abcd"


@pytest.mark.slow
def test_initials_in_one_long_line_take_little_time():
    begin = time.process_time()
    clean("Ada Bell, Carl Dean, Eva Ford\n" + "AB CD EF GH " * 2000, mask=True, names=True)
    assert time.process_time() - begin < 8


def test_a_numbered_heading_that_begins_with_an_accent_is_not_joined_to_the_line_before():
    full = "The models are handed over to the client by the information manager"
    assert join_lines(f"{full}\n{full}\n4.2 \u00dcbergabe\n")[0] == f"{full} {full}\n4.2 \u00dcbergabe\n"


@pytest.mark.parametrize(
    "item", ["a) the second one", "ii. the second one", "12) the second one", "3.2 Übergabe", "- one"]
)
def test_an_item_of_a_list_is_not_joined_to_the_line_before(item):
    full = "the information manager checks every model"
    assert join_lines(f"{full}\n{item}\nand so on") == (f"{full}\n{item}\nand so on", 0)
