"""Configs: what is given is checked, and a mistake is named with its remedy."""

import argparse
import time

import pytest

from common import config as configs
from common.disk.files import write_text
from common.errors import UserError
from pipelines import run_config, workloads
from pipelines.run.folder import Run
from pipelines.server import schemas
from pipelines.workloads.cvrp import WORKLOAD
from tests.processor import within

Config = WORKLOAD.config


def load(tmp_path, text, *words):
    path = tmp_path / "config.yaml"
    path.write_text(text)
    return configs.load(path, Config, words)


def test_words_win_over_yaml_which_wins_over_defaults(tmp_path):
    config = load(tmp_path, "training: {steps: 10, batch_size: 8}\nseed: 3", "training.batch_size=16")
    assert (config.training.steps, config.training.batch_size, config.seed) == (10, 16, 3)
    assert config.training.keep_checkpoints == 3


@pytest.mark.parametrize(
    ("workload", "right", "wrong"),
    [
        ("bep", "data.sources", ("source", "folder", "instances")),
        ("crypto", "data.folder", ("sources", "instances")),
        ("cvrp", "evaluation.instances", ("source", "sources", "folder")),
        ("lmol", "data.source", ("sources", "folder", "instances")),
        ("tinystories", "data.source", ("sources", "folder", "instances")),
    ],
)
def test_the_key_for_ones_own_files_is_named_where_that_of_another_workload_is_given(workload, right, wrong):
    for name in wrong:
        with pytest.raises(UserError, match=rf"data\.{name}: unknown key; did you mean '{right}'\?"):
            configs.check_words(workloads.find(workload).config, [f"data.{name}=mine"])


def test_a_folder_given_as_the_source_of_candles_is_told_its_key():
    with pytest.raises(UserError, match=r"'ccxt'; files of your own are given as data\.folder=exports \(given 'expor"):
        configs.check_words(workloads.find("crypto").config, ["data.source=exports"])


def test_a_path_below_ones_home_is_one_in_a_word_too(tmp_path, monkeypatch):
    """Shells leave the tilde in data.source=~/images as it is."""
    monkeypatch.setenv("HOME", "/home/ann")
    read = load(tmp_path, "training: {steps: 1}", "evaluation.instances=~/mine.npz", "data.capacity=~")
    assert (read.evaluation.instances, read.data.capacity) == ("/home/ann/mine.npz", None)


def test_an_exponent_without_a_point_is_a_number(tmp_path):
    """PyYAML reads 1e-4 as a string."""
    assert load(tmp_path, "training: {steps: 1, learning_rate: 1e-4}").training.learning_rate == 1e-4
    assert load(tmp_path, "training: {steps: 1}", "training.learning_rate=3e-4").training.learning_rate == 3e-4


def test_the_resolved_config_reads_back_the_same(tmp_path):
    config = load(tmp_path, "training: {steps: 1}", "training.micro_batch_size=4", "tracking.log_with=[trackio]")
    assert load(tmp_path, configs.dump(config)) == config


@pytest.mark.parametrize(
    ("text", "words", "message"),
    [
        (
            "",
            ["training.batchsize=256"],
            "training.batchsize: unknown key; did you mean 'training.batch_size'? (given 256)",
        ),
        ("data: {customer: 20}", [], "did you mean 'data.customers'?"),
        ("", ["trainin.steps=3"], "did you mean 'training"),
        ("", ["zzz=3"], "zzz: unknown key; known keys: seed, training"),
        ("", ["training.batch_size=yes"], "training.batch_size: Input should be a number (given True)"),
        ("", ["training.batch_size=big"], "training.batch_size: Input should be a valid integer"),
        ("", ["training.batch_size=big"], "(given 'big')"),
        ("", ["training.batch_size=-1"], "greater than or equal to 1 (given -1)"),
        ("", ["training.betas=[0.9, 1]"], "training.betas: Input should be less than 1 (given 1)"),
        ("", ["training.learning_rate=.nan"], "finite number (given nan)"),
        ("", ["training.schedule=no"], "quote it (given False)"),
        ("", ["training.steps=2000", "training.epochs=2"], "make the other null (given steps: 2000, epochs: 2.0)"),
        ("", ["training.micro_batch_size=0"], "greater than or equal to 1, or Input should be 'auto' (given 0)"),
        ("", ["training.micro_batch_size=most"], "training.micro_batch_size"),
        ("", ["training.steps"], "'training.steps' is not of the form key.path=value"),
        ("", ["data.customers", "50"], "not of the form key.path=value; did you mean data.customers=50?"),
        ("", ["training.steps="], "training.steps= has no value: give one, as in training.steps=100"),
        ("", ["data.instances=my.vrp"], "unknown key; did you mean 'evaluation.instances'?"),
        ("", ["customers=50"], "unknown key; did you mean 'data.customers'?"),
        ("", ["tracking.log_with=wandb"], "give a list in brackets, as in tracking.log_with=[wandb] (given 'wandb')"),
        ("", ["training.betas=0.9"], "give a list in brackets, as in training.betas=[0.9, 0.999] (given 0.9)"),
        ("", ["data.customers=fifty"], "unable to parse string as an integer (given 'fifty')"),
        ("", ["evaluation.augment=maybe"], "evaluation.augment: give true or false (given 'maybe')"),
        ("", ["training.stepss=3"], "in the words of the command:\n"),
        ("training: {stepss: 3}", ["seed=3"], "config.yaml:\n"),
        ("seed: 1", ["seed.deep=1"], "seed.deep: 'seed' is a value, not a section"),
        ("", ["training.steps=[1"], "training.steps: '[1' is not a YAML value"),
        ("- a", [], "must hold a mapping"),
        ("a: b: c", [], "is not YAML"),
        ("", ["data.capacity=8"], "data.capacity=8 is below the largest demand 9"),
        ("", ["data.customers=33"], "data.capacity must be given for data.customers=33, such as data.capacity=34"),
        ("", ["data.customers=75"], "data.capacity must be given for data.customers=75, such as data.capacity=45"),
        ("", ["data.customers=[20,500]"], "such as data.capacity=50"),
        ("", ["model.kind=gnn"], "model.kind: Input should be 'gat', 'gt', 'dgt'"),
        ("", ["model.neighbors=4"], "model.neighbors=4 needs model.kind=gat (given gt)"),
        ("", ["model.width=100"], "model.width=100 is not a multiple of model.heads=8"),
        ("", ["training.starts=21"], "training.starts=21 is more than data.customers=20"),
        ("", ["training.starts=4", "training.baseline=rollout"], "training.starts=4 has no meaning"),
    ],
)
def test_a_mistake_is_named_with_what_was_given_and_what_to_type(tmp_path, text, words, message):
    with pytest.raises(UserError) as error:
        load(tmp_path, text or "training: {steps: 2000}", *words)
    assert message in str(error.value)
    assert len(str(error.value).splitlines()) <= 2


BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 10)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BOMB, "line 2: *a0 is an alias"),
        ("&a [*a]", "line 1: *a is an alias"),
        ("[" * 60_000, "16 levels or fewer"),
        ("- " * 30_000, "16 levels or fewer"),
        ("[" + "1," * 30_000, "5000 values or fewer"),
        ("seed: 1\nseed: 2", "line 2: the key seed is given twice"),
        ("training: {steps: 1, steps: 2}", "line 1: the key steps is given twice"),
        ("1: 2", "line 1: the key 1 is not text; put it in quotes"),
        ("on: 2", "line 1: the key on is not text; put it in quotes"),
        ("? [a]\n: 1", "line 1: the key of several values is not text"),
        ("<<: {seed: 1}", "line 1: the key << is not text"),
        ("seed: !!int a", "tag:yaml.org,2002:int is a tag"),
        ("seed: !!python/object/apply:os.system [ls]", "is a tag"),
        (f"seed: {'9' * 6000}", "line 1: a whole number needs more than 64 bits"),
        (f"seed: {2**64}", "line 1: a whole number needs more than 64 bits"),
        (f"seed: 0x{'f' * 6000}", "line 1: a whole number needs more than 64 bits"),
        ("seed: 0b_", "invalid literal"),
        ("seed: 2020-13-45", "month must be in 1..12"),
        ("seed: \0", "is not YAML"),
        ("seed: \udcff", "can't decode"),
        ("#" * 2**16 + "\n", "larger than the 65536 bytes"),
    ],
)
def test_a_config_that_hurts_or_misleads_is_refused_at_once(tmp_path, text, message):
    path = tmp_path / "config.yaml"
    path.write_bytes(text.encode(errors="surrogateescape"))
    began = time.process_time()
    with pytest.raises(UserError, match=f"cannot read the config {path}: ") as error:
        configs.load(path, Config)
    assert message in str(error.value)
    assert len(str(error.value)) < 600
    assert within(time.process_time() - began, 0.9)


def test_many_mistakes_are_told_in_a_few_lines_at_once(tmp_path):
    began = time.process_time()
    with pytest.raises(UserError) as error:
        load(tmp_path, "data:\n" + "".join(f"  key{i}: {'x' * 15}\n" for i in range(2400)))
    assert len(str(error.value).splitlines()) == 22
    assert str(error.value).endswith("and 2380 more")
    assert within(time.process_time() - began, 2)


def test_words_are_read_as_the_file_is(tmp_path):
    for word in ("data=[*a]", "seed=!!int 3", "data={a: 1, a: 2}"):
        with pytest.raises(UserError, match="is not a YAML value; put it in quotes"):
            load(tmp_path, "", word)


@pytest.mark.parametrize("name", sorted(path.stem for path in run_config.CONFIGS.glob("*.yaml")))
def test_a_length_in_one_unit_needs_no_word_for_the_other(name):
    path, cls = run_config.CONFIGS / f"{name}.yaml", workloads.find(name.partition("_")[0]).config
    steps = configs.load(path, cls, ["training.steps=7"]).training
    assert (steps.steps, steps.epochs) == (7, None)
    assert steps.num_steps(1) == 7
    epochs = configs.load(path, cls, ["training.epochs=3"]).training
    assert (epochs.steps, epochs.epochs) == (None, 3)
    assert epochs.num_steps(10 * epochs.batch_size) == 30
    for words in (["training.steps=7", "training.epochs=3"], ["training.steps=null", "training.epochs=null"]):
        with pytest.raises(UserError, match=r"give one of training\.steps and training\.epochs"):
            configs.load(path, cls, words)


@pytest.mark.parametrize("length", ["steps", "epochs"])
def test_a_resumed_run_may_be_given_its_length_in_the_other_unit(tmp_path, monkeypatch, length):
    monkeypatch.chdir(tmp_path)
    run, other = Run("cvrp", "mine"), {"steps": "epochs", "epochs": "steps"}[length]
    run.keep_config(load(tmp_path, "", f"training.{length}=5"))
    write_text(run.metrics_file, "")
    args = argparse.Namespace(resume=True, restarted=False, config=None, words=[f"training.{other}=9"])
    training = run_config.training_config(args, WORKLOAD, run).training
    assert (getattr(training, length), getattr(training, other)) == (None, 9)


def test_differences_name_dotted_keys_and_both_values(tmp_path):
    old, new = load(tmp_path, "training: {steps: 1}"), load(tmp_path, "training: {steps: 2}", "model.kind=dgt")
    assert configs.differences(old, new) == ["training.steps: 1 -> 2", "model.kind: gt -> dgt"]


def test_every_field_says_what_it_is():
    def fields(cls):
        for name, field in cls.model_fields.items():
            if isinstance(field.annotation, type) and issubclass(field.annotation, configs.Section):
                yield from fields(field.annotation)
            else:
                yield name, field

    assert [name for name, field in fields(Config) if not field.description] == []


@pytest.mark.parametrize(
    ("cls", "tree", "told"),
    [
        (
            workloads.inputs("crypto").input,
            {"candles": [[0, 1, 2]]},
            "candles: it must be an object with time, open, high, low, close, volume (",
        ),
        (schemas.Chat, {"model": "small", "messages": [{"content": "x"}]}, "messages.0.role: it is missing"),
        (schemas.Chat, {"model": "small", "messages": []}, "messages: give 1 or more (given [])"),
    ],
)
def test_an_error_in_a_list_is_told_once_and_a_section_by_its_keys(cls, tree, told):
    with pytest.raises(UserError) as error:
        configs.checked(cls, tree, "an input")
    assert str(error.value).startswith(f"an input: {told}")
    assert ";" not in str(error.value)
