"""Told stories are judged by their names, words, repetitions and ends."""

import pytest
from pydantic import ValidationError

from models.stories.inputs import StorySettings
from pipelines.workloads.tinystories.config import Config
from pipelines.workloads.tinystories.evaluation import _listened
from pipelines.workloads.tinystories.story_quality import Heard, Listener, row
from tests.models.tiny import make, trained_tokenizer

TRAINING = (
    "Once there was a girl named Lily. She ran. " * 5 + "A boy called Tom sat. " * 5 + "A cat named Zed. He is ten."
)
LILY = "There was a girl named Lily. She ran."


def test_a_name_that_nothing_introduces_comes_from_nowhere_and_once():
    listener = Listener(TRAINING)
    assert listener.names == {"lily", "tom"}  # Zed was introduced only once
    for rest, nowhere, again in [
        ("Tom sat. Tom ran.", 1, False),
        ("A boy called Tom sat. Tom and Lily ran.", 0, True),
        ("She ran.", 0, False),
        ("Zed ran.", 0, False),
    ]:
        found = listener.heard(f"{LILY} {rest}")
        assert (found.from_nowhere, found.hero_again) == (nowhere, again), rest
    assert listener.heard("She ran. He sat. Lily ran.").from_nowhere is None


def test_names_of_the_first_two_sentences_are_known_and_a_name_is_introduced_five_times():
    listener = Listener(TRAINING)
    assert listener.heard(f"{LILY.split('.')[0]}. Tom sat. Tom ran.").from_nowhere == 0
    assert listener.heard(f"{LILY} Tom sat. Tom ran.").from_nowhere == 1
    assert [Listener("A cat named Zed. " * count).names for count in (4, 5)] == [set(), {"zed"}]


def test_only_the_first_words_are_heard():
    far = f"{LILY} {'She ran. ' * 75}Tom sat. Lily ran."
    assert Listener(TRAINING).heard(far).from_nowhere == 0
    assert not Listener(TRAINING).heard(far).hero_again


def test_sentences_that_name_the_hero_and_those_that_do_it_twice_are_counted():
    listener = Listener(TRAINING)
    found = listener.heard(
        f'{LILY} Lily sat. Lily said, "Lily, sit." She ran. Lily saw Lily and Lily. A boy called Tom saw Tom.'
    )
    assert (found.hero_again, found.hero_twice) == (3, 2)
    assert (listener.heard("She ran. He sat. It ran.").hero_again, listener.heard(LILY).hero_twice) == (0, 0)


def test_words_that_are_none_and_repetitions_are_counted():
    found = Listener(TRAINING).heard("She ran. She sat. She snorbled. She ran. She sat.")
    assert (found.words, found.unknown, found.repeated) == (10, 1, 1)


def test_a_beginning_ends_with_the_sentence_that_names_a_hero():
    listener = Listener(TRAINING)
    assert listener.beginning(f"{LILY} Tom sat.") == "There was a girl named Lily."
    assert listener.beginning("Once. Lily ran. Tom sat.") == "Once. Lily ran."
    assert listener.beginning("Once. She ran. Tom sat.") is None


def test_a_beginning_that_is_longer_than_a_prompt_may_be_is_gone_on_with():
    listener, story = Listener(TRAINING), "once lily ran" + " and ran" * 2000 + "."
    assert listener.beginning(story) == story
    model, settings = make(tokenizer=trained_tokenizer(32)), Config(evaluation={"heard_tokens": 5})
    told, real = _listened(settings, model, [story, "a cat named lily sat."], listener)
    assert told["with a hero"] == real["with a hero"] == 2


@pytest.mark.parametrize(
    ("key", "value", "setting"),
    [("temperature", 101, "temperature"), ("sample_tokens", 10_001, "length"), ("heard_tokens", 10_001, "length")],
)
def test_what_no_model_of_stories_takes_is_refused_before_it_trains(key, value, setting):
    with pytest.raises(ValidationError, match=rf"evaluation\.{key}"):
        Config(evaluation={key: value})
    with pytest.raises(ValidationError):
        StorySettings(**{setting: value})


def test_a_row_has_shares_of_the_stories_with_a_hero():
    stories = [Heard(0, 3, 1, 5, 1, 2), Heard(2, 1, 0, 5, 0, 0), Heard(1, 0, 0, 5, 0, 0), Heard(3, 0, 0, 5, 0, 0)]
    stories.append(Heard(None, 0, 0, 20, 0, 0))
    found = row("told", stories, [True, False, True, True, True])
    assert found["with a hero"] == 4
    assert (found["no name from nowhere"], found["hero named again"], found["ended"]) == (1 / 4, 1 / 2, 4 / 5)
    assert found["hero twice in a sentence"] == 1 / 4
    assert (found["unknown words"], found["repeated 4-grams"]) == (1 / 40, 2 / 40)
    assert row("told", stories[4:], [])["hero named again"] is None
