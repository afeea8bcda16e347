"""The embedded plans are many, long enough, plain, about every field of the form, and no two of them share text."""

import re
from itertools import chain
from pathlib import Path

import pytest

from models.plans.fields import FIELDS
from pipelines.workloads import bep

DOCUMENTS = {path.stem: path.read_text() for path in sorted((Path(bep.__file__).parent / "corpus").glob("*.md"))}

# What a heading, the label of a field or the first cell of a table row says where it is about a field of the form.
TOPICS = {
    "projectName": ["project name"],
    "projectDescription": ["project description", "name and description", "description of the project"],
    "executiveSummary": ["executive summary"],
    "projectObjectives": ["project objectives"],
    "bimObjectives": ["bim objectives"],
    "projectScope": ["project scope", "scope"],
    "stakeholders": ["stakeholders"],
    "rolesResponsibilities": ["roles and responsibilities", "responsibilities"],
    "deliveryTeam": ["delivery team"],
    "collaborationProcedures": ["collaboration procedures", "collaboration"],
    "informationExchange": ["information exchange"],
    "cdeWorkflow": ["cde workflow", "common data environment"],
    "modelRequirements": ["model requirements"],
    "dataStandards": ["data standards"],
    "namingConventions": ["naming conventions", "naming"],
    "qualityAssurance": ["quality assurance"],
    "validationChecks": ["validation checks"],
    "technologyStandards": ["technology standards"],
    "softwarePlatforms": ["software platforms"],
    "coordinationProcess": ["coordination process"],
    "clashDetection": ["clash detection"],
    "healthSafety": ["health and safety"],
    "handoverRequirements": ["handover requirements"],
    "asbuiltRequirements": ["as-built requirements"],
    "cobieRequirements": ["cobie requirements"],
}
LABEL = re.compile(
    r"^#+ (.+)"  # a heading, also one that asks a question
    r"|^(?:- |\d[\d.]* )?\*{0,2}([A-Z][^.:|*\n]{2,60})[:.]\*{0,2} \S"  # "Field: value", "1.3 Field. Value"
    r"|^\| ([^|\n]+) \|",
    re.MULTILINE,
)
SPAN = 50  # characters
CONTACTS = {
    "e-mail address": r"\S@\S",
    "telephone number": r"\+\d{2}|(?<![\w.])0\d{2,4}[ -]\d{3}|\d[\d ()-]{9,}\d",
    "URL": r"https?:|www\.|\w\.(?:com|org|net|co|uk|eu|io)\b",
}


def labels(text):
    return ["".join(filter(None, found)).lower() for found in LABEL.findall(text)]


def spans(text):
    return [text[start : start + SPAN] for start in range(len(text) - SPAN + 1)]


def test_there_are_enough_documents_and_characters():
    assert len(DOCUMENTS) >= 12
    assert sum(map(len, DOCUMENTS.values())) >= 120_000


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_is_ascii_with_paragraphs_on_one_line(name):
    text = DOCUMENTS[name]
    assert text.isascii()
    assert re.search(r"[ \t]$|\t|\r|\n{3}", text, re.MULTILINE) is None
    # Prose goes on in the next line nowhere: lines without a blank one between are of a list, a table or a form.
    lines = re.findall(r"^(?![#|]|- |\w{1,2}[.)] ).+\n(?=[a-z])", text, re.MULTILINE)
    assert lines == []


def test_the_topics_are_the_first_fields_of_the_form():
    assert list(TOPICS) == list(FIELDS)[:25]


def test_a_topic_has_a_heading_or_field_in_five_documents():
    found = [labels(text) for text in DOCUMENTS.values()]
    about = {
        topic: sum(any(w in label for label in every for w in words) for every in found)
        for topic, words in TOPICS.items()
    }
    assert {topic: documents for topic, documents in about.items() if documents < 5} == {}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_has_most_topics(name):
    found = labels(DOCUMENTS[name])
    assert sum(any(words in label for label in found for words in accepted) for accepted in TOPICS.values()) >= 15


def test_no_document_repeats_another():
    every = {name: spans(text) for name, text in DOCUMENTS.items()}
    for name, own in every.items():
        others = set(chain.from_iterable(each for other, each in every.items() if other != name))
        shared = [span for span in own if span in others]
        assert len(shared) < 0.01 * len(own), (name, shared[0])


@pytest.mark.parametrize("kind", CONTACTS)
def test_nothing_in_it_reaches_anyone(kind):
    for name, text in DOCUMENTS.items():
        assert re.findall(rf".{{0,20}}(?:{CONTACTS[kind]}).{{0,20}}", text) == [], name


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("e-mail address", "write to someone@example"),
        ("telephone number", "call 020 7946 0123"),
        ("telephone number", "call +44 20"),
        ("URL", "see www.example"),
        ("URL", "see plans.example.org"),
    ],
)
def test_a_way_to_reach_someone_would_be_seen(kind, text):
    assert re.search(CONTACTS[kind], text)


def test_a_prompt_begins_a_sentence_that_the_corpus_does_not_hold():
    corpus = [text.lower() for text in DOCUMENTS.values()]
    prompts = {field.beginning for field in FIELDS.values()}
    assert {prompt for prompt in prompts if not 15 <= len(prompt) <= 60} == set()
    assert {prompt for prompt in prompts if not re.fullmatch(r"[A-Z][ -~]+ ", prompt)} == set()
    assert {prompt for prompt in prompts if any(prompt.lower() in text for text in corpus)} == set()


def test_prompts_are_spelt_with_words_of_the_corpus():
    known = set(re.findall(r"[a-z]+", "\n".join(DOCUMENTS.values()).lower()))
    beginnings = " ".join(FIELDS[name].beginning for name in TOPICS)
    assert set(re.findall(r"[a-z]+", beginnings.lower())) <= known
