"""Told stories are judged by their names, words, repetitions and ends."""

from pipelines.workloads.tinystories.listening import Heard, Listener, row

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


def test_a_row_has_shares_of_the_stories_with_a_hero():
    stories = [Heard(0, 3, 1, 10, 1, 2), Heard(2, 1, 0, 10, 0, 0), Heard(None, 0, 0, 20, 0, 0)]
    found = row("told", stories, [True, False, True])
    assert found["with a hero"] == 2
    assert (found["no name from nowhere"], found["hero named again"]) == (0.5, 1.0)
    assert found["hero twice in a sentence"] == 1 / 4
    assert (found["words that are none"], found["repeated 4-grams"]) == (1 / 40, 2 / 40)
    assert row("told", stories[2:], [])["hero named again"] is None
