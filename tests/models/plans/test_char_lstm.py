"""The character LSTM: its tokenizer, the original's size, state, and the text it writes."""

import math

import pytest
import torch

from models import io
from models.plans.char_lstm import PRESETS, CharLSTM
from models.plans.characters import END, MASKS, PAD, SPECIAL_TOKENS, UNKNOWN, Characters
from models.plans.inputs import TextInput, TextSettings
from models.plans.lstm_network import CharLSTMConfig
from tests.stages import ROOT

LETTERS = "\n .abcdefghijklmnopqrstuvwxyz"


def tiny(preset="default", vocabulary=LETTERS, **changes):
    torch.manual_seed(0)
    sizes = {**PRESETS[preset], "width": 16, **changes}
    return CharLSTM(CharLSTMConfig(vocabulary=vocabulary, **sizes)).eval()


def always(model, text):
    """Make `model` write `text` over and over, whatever was before: only the last character decides."""
    ids = model.characters.encode(text)
    successor = dict(zip(ids, [*ids[1:], ids[0]], strict=True))

    def forward(tokens, state=None):
        logits = torch.full((*tokens.shape, len(model.characters)), -1e9)
        for place, token in enumerate(tokens[0].tolist()):
            logits[0, place, successor.get(token, ids[0])] = 0.0
        return logits, state

    return foreseeing(model, forward)


def foreseeing(model, forward):
    """Make `model` expect what `forward` says, for whole texts and token by token."""

    def step(token, state):
        return torch.log_softmax(forward(torch.tensor([[token]]))[0][0, 0], -1), state

    model.forward, model.steps = forward, lambda: step
    return model


def test_text_comes_back_from_its_ids():
    characters = Characters("aäz ")
    assert characters.decode(characters.encode("zäa az")) == "zäa az"
    assert len(characters) == len(SPECIAL_TOKENS) + 4


def test_no_text_can_spell_a_special_token():
    characters = Characters("".join(sorted(set("".join(SPECIAL_TOKENS)))))
    for name in SPECIAL_TOKENS:
        ids = characters.encode(name)
        assert len(ids) == len(name)
        assert min(ids) >= len(SPECIAL_TOKENS)
        assert characters.decode(ids) == name


def test_masks_are_read_by_their_names_and_unknown_characters_are_marked():
    characters = Characters("ab")
    assert characters.encode("".join(MASKS)) == [3, 4, 5]
    assert characters.decode(characters.encode("a\ue000\ue001\ue002b")) == "a<email><telephone><url>b"
    assert characters.encode("?") == [UNKNOWN]
    assert characters.decode([UNKNOWN, PAD, END]) == "\ufffd"


def test_case_is_treated_alike_in_training_and_use():
    lower, both = Characters("ab", lower_case=True), Characters("abAB")
    assert lower.encode("AbBa") == lower.encode("abba")
    assert both.encode("AbBa") != both.encode("abba")
    model = tiny(lower_case=True)
    assert model.complete("The Plan", 20) == model.complete("the plan", 20)


@pytest.mark.parametrize("vocabulary", ["aba", ["ab"], ["\ue000"], [""], [1]])
def test_a_vocabulary_that_no_text_could_have_is_refused(vocabulary):
    with pytest.raises(ValueError, match="different single characters"):
        Characters(vocabulary)


@pytest.mark.parametrize("preset", PRESETS)
def test_step_by_step_equals_the_whole_sequence(preset):
    model = tiny(preset, layers=2)
    tokens = torch.randint(len(model.characters), (3, 40), generator=torch.Generator().manual_seed(0))
    whole, last = model(tokens)
    state, steps = None, []
    for step in tokens.split(1, 1):
        logits, state = model(step, state)
        steps.append(logits)
    torch.testing.assert_close(torch.cat(steps, 1), whole)
    torch.testing.assert_close(state, last)
    pieces, state = [], None
    for piece in tokens.split([7, 20, 13], 1):
        logits, state = model(piece, state)
        pieces.append(logits)
    torch.testing.assert_close(torch.cat(pieces, 1), whole)


@pytest.mark.parametrize("preset", PRESETS)
def test_every_token_has_a_probability(preset):
    model = tiny(preset)
    logits, _ = model(**model.example())
    assert logits.shape[-1] == len(model.characters)
    torch.testing.assert_close(logits.softmax(-1).sum(-1), torch.ones(logits.shape[:-1]))
    assert logits.isfinite().all()


@pytest.mark.parametrize("preset", PRESETS)
def test_a_saved_model_completes_as_before(preset, tmp_path):
    model = tiny(preset, lower_case=True)
    io.save(model, tmp_path)
    loaded = io.load(tmp_path)
    assert loaded.config == model.config
    settings = {"max_characters": 30, "temperature": 0.8, "top_k": 10, "top_p": 0.95, "seed": 3}
    assert loaded.complete("the plan", **settings) == model.complete("the plan", **settings)


def test_a_completion_is_a_function_of_its_arguments():
    model = tiny()
    written = [model.complete("plan", 40, 1.0, seed=seed) for seed in (0, 0, 1)]
    assert written[0] == written[1] != written[2]
    assert model.complete("plan", 40, 0.0, seed=0) == model.complete("plan", 40, 0.0, seed=1)
    assert len(model.complete("plan", 7, 1.0)) <= 7
    assert "".join(model.stream({"prompt": "plan"}, length=40, temperature=1.0)) == written[0]


def test_the_whole_prompt_counts():
    model = tiny()
    assert model.complete("a plan for the site", 40, 0.0) != model.complete("e", 40, 0.0)


@pytest.mark.parametrize(
    ("stop", "text"),
    [
        (None, "bcabcabcab"),
        ("ca", "b"),
        ("b", ""),
        ("cac", "bcabcabcab"),
        ("cabcabcabc", "bcabcabcab"),
        ("abcab", "bc"),
    ],
)
def test_text_ends_before_stop_however_it_streams(stop, text):
    model = always(tiny(), "abc")
    assert model.complete("a", 10, stop=stop) == text
    streamed = list(model.stream({"prompt": "a"}, length=10, stop=stop))
    assert "".join(streamed) == text
    assert all(len(character) == 1 for character in streamed)


def test_stop_is_lower_cased_where_the_text_is():
    assert always(tiny(lower_case=True), "abc").complete("a", 10, stop="CA") == "b"


def test_a_completion_ends_with_the_document_and_has_no_unknown_characters():
    model = tiny()
    wanted = model.characters.encode("b")[0]

    def forward(tokens, state=None):
        scores = {PAD: 9.0, UNKNOWN: 9.0, END if (tokens == wanted).any() else wanted: 5.0}
        logits = torch.full((1, tokens.shape[1], len(model.characters)), -math.inf)
        for token, score in scores.items():
            logits[..., token] = score
        return logits, state

    assert foreseeing(model, forward).complete("a", 10) == "b"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"prompt": ""}, "prompt is missing or empty"),
        ({"prompt": "a" * 10_001}, "prompt: String should have at most 10000 characters"),
        ({"prompt": "a", "max_characters": 0}, "length: Input should be greater than or equal to 1"),
        ({"prompt": "a", "temperature": -1.0}, "temperature"),
        ({"prompt": "a", "top_p": 0.0}, "top_p"),
        ({"prompt": "a", "stop": ""}, "stop: String should have at least 1 character"),
    ],
)
def test_arguments_out_of_range_are_refused_at_once(arguments, text):
    with pytest.raises(ValueError, match=text):
        tiny().complete(**arguments)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"kind": "onehot"}, "kind='onehot' is unknown"),
        ({"layers": 0}, "layers=0 must be 1 or more"),
        ({"embedding": 0}, "embedding=0"),
        ({"dropout": 1.0}, "dropout=1.0"),
        ({"vocabulary": "aa"}, "occurs twice"),
    ],
)
def test_configs_that_are_no_model_are_refused(changes, text):
    with pytest.raises(ValueError, match=text):
        tiny(**changes)


def test_skimming_a_long_text_runs_its_end_alone_and_ends_where_reading_it_does(monkeypatch):
    model, sizes = tiny(), []
    model.register_forward_hook(lambda _, given, __: sizes.append(given[0].shape[1]))
    tokens = model.example()["tokens"].flatten().numpy()
    monkeypatch.setattr("models.plans.readers.FORGOTTEN", 90)
    read, skimmed = model.reader(), model.reader()
    skimmed.skim(tokens[:5])
    read.read(tokens)
    skimmed.skim(tokens[5:])
    assert sizes[-2:] == [len(tokens), 90]
    torch.testing.assert_close(skimmed.ahead(), read.ahead(), atol=1e-5, rtol=1e-4)
    assert not torch.equal(skimmed.ahead(), model.reader().ahead())


def test_prompts_pass_the_normalisation_of_training_text():
    """Until now, no-break spaces, decomposed accents, ligatures and Word's quotes were unknown characters."""
    typed = TextInput(prompt="it\u2019s\u00a0a \ufb01rm\u2013e\u0301", document="\u201cA\u201d\r\n")
    assert (typed.prompt, typed.document) == ("it's a firm-\u00e9", '"A"\n')


def test_a_letter_whose_accent_is_unknown_is_read_without_it():
    assert Characters("abu\u00e9").encode("\u00fc\u00e9a\u00df") == [8, 9, 6, 1]


def test_a_character_outside_the_vocabulary_is_spelled_by_bytes_and_nothing_else_changes():
    characters = Characters("0123456789abcdefu")
    unknown, digits = UNKNOWN, {digit: characters.ids[digit] for digit in "0123456789abcdef"}
    assert characters.spelled("bau") == characters.encode("bau")
    assert characters.spelled("\u00fc") == [unknown, *(digits[digit] for digit in "c3bc")]
    assert len({tuple(characters.spelled(each)) for each in "u\u00fc\u00fb\u010d\u0391\U0001f60a\ud800"}) == 7
    assert Characters("abu").spelled("\u00fc?") == Characters("abu").encode("\u00fc?")  # digits are unknown, too
    assert Characters("0123456789abcdef\u00fc", lower_case=True).spelled("\u00dc") == [characters.ids["f"] + 1]


SENTENCE = "Die Gr\u00fcndung ist gepr\u00fcft und f\u00fchrt \u00fcber das Gel\u00e4nder."
GERMAN = f"{SENTENCE} Die Gr\u00fcndung ist gepr\u00fcft.\n" * 2


def test_a_shipped_model_writes_letters_that_it_has_read_and_no_others():
    """Until now, umlauts were read and written as plain letters by models of English plans."""
    model = io.load(ROOT / "models/pretrained/bep-plans")
    assert "\u00fc" not in model.characters.ids
    given, settings = {"prompt": "Die Gr", "document": GERMAN}, {"length": 22, "temperature": 0.5, "stop": "pr\u00fcfu"}
    written = "".join(model.stream(given, **settings))
    assert written.startswith("\u00fcndung ist gepr\u00fcft")
    inputs = [TextInput(**given), TextInput(prompt="The information manager is ")]
    beside, other = model.answers(inputs, TextSettings(**settings))
    assert beside["text"] == written
    assert other["text"].isascii()
