"""The mechanism of tests/evidence.py, on parts of a moment; and that the commands of the true ones can be run."""

import json
import re
import shlex

import pytest

from common import config
from pipelines import arguments, run_config, workloads
from tests import evidence, evidence_parts
from tests.evidence_parts import PARTS, ROOT, Figure, Part, evaluated, matched, printed

PRINTS = Part(
    ["""echo '{"speed": 3}'""", """echo "took 1.5 s" && echo '{"speed": 4, "name": "x"}'"""],
    {"speed": printed("speed", at_least=4), "seconds": matched(r"took ([\d.]+) s", at_most=1.5)},
)


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """Run parts with words; return the exit status and what is recorded."""
    monkeypatch.setattr(evidence, "ROOT", tmp_path)
    monkeypatch.setattr(evidence_parts, "ROOT", tmp_path)
    path = tmp_path / "docs/evidence.json"

    def run(parts, *words):
        status = evidence.main(words, parts, path)
        return status, json.loads(path.read_text()) if path.exists() else {}

    return run


def test_figures_are_recorded_with_what_they_come_from(measured):
    status, recorded = measured({"prints": PRINTS})
    assert status == 0
    entry = recorded["prints"]
    assert entry["figures"] == {"speed": 4, "seconds": 1.5}
    assert entry["command"] == " && ".join(PRINTS.commands)
    assert entry["seconds"] == pytest.approx(sum(entry["seconds_of_commands"]), abs=0.11)
    assert len(entry["seconds_of_commands"]) == 2
    assert entry.keys() >= {"device", "commit", "date"}
    assert "failed" not in entry


def test_the_entry_of_a_part_is_no_change_of_the_code_for_the_next_one(measured, monkeypatch, tmp_path):
    written = tmp_path / "docs/evidence.json"
    about = {"devices": ["one"], "commit": "c0ffee"}
    monkeypatch.setattr(evidence, "provenance", lambda *_: about | {"uncommitted_changes": written.exists()})
    _, recorded = measured({"one": PRINTS, "two": PRINTS})
    assert [entry["uncommitted_changes"] for entry in recorded.values()] == [False, False]


def test_only_the_parts_that_ran_are_replaced(measured):
    measured({"one": PRINTS, "two": PRINTS})
    other = Part(["""echo '{"speed": 7}'"""], {"speed": printed("speed")})
    status, recorded = measured({"one": other, "two": other}, "two")
    assert status == 0
    assert [recorded[name]["figures"]["speed"] for name in ("one", "two")] == [4, 7]


def test_a_part_that_fails_is_recorded_with_its_last_lines_and_the_others_run(measured, capsys):
    fails = Part(["seq 100", "echo the reason; exit 3", "touch never"], {"speed": printed("speed")})
    status, recorded = measured({"fails": fails, "prints": PRINTS})
    assert status == 1
    assert recorded["fails"]["failed"][0] == "exit status 3 of echo the reason; exit 3"
    assert recorded["fails"]["failed"][-3:] == ["99", "100", "the reason"]
    assert recorded["fails"]["figures"] == {}
    assert len(recorded["fails"]["seconds_of_commands"]) == 2
    assert recorded["prints"]["figures"]["speed"] == 4
    assert "fails: exit status 3" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("figure", "fault"),
    [
        (printed("speed", at_most=3.9), "speed: 4, must be at most 3.9"),
        (printed("speed", at_least=4.1), "speed: 4, must be at least 4.1"),
        (printed("weight"), "speed: cannot be read, KeyError('weight')"),
        (matched(r"took (\d+) hours"), "speed: cannot be read, IndexError("),
        (evaluated("none/none", "test", "cost"), "speed: cannot be read, FileNotFoundError("),
        (Figure(lambda output: float("nan")), "speed: cannot be read, ValueError("),
    ],
)
def test_a_figure_that_misses_its_bound_or_is_not_there_is_a_failure(measured, figure, fault):
    status, recorded = measured({"prints": Part(PRINTS.commands, {"speed": figure})})
    assert status == 1
    assert recorded["prints"]["failed"][0].startswith(fault)


def test_a_run_is_trained_anew(measured, tmp_path):
    old = tmp_path / "runs/toy/evidence/old"
    old.mkdir(parents=True)
    assert measured({"toy": Part(["ls runs/toy; mkdir -p runs/toy/evidence"], runs=["toy/evidence"])})[0] == 0
    assert not old.exists()


def test_a_part_without_its_file_is_left_out(measured, capsys):
    assert measured({"book": Part(["exit 1"], needs="../nowhere.txt")}) == (0, {})
    assert "book: left out, there is no ../nowhere.txt" in capsys.readouterr().out


def test_an_unknown_part_is_refused_with_the_known_ones(measured, capsys):
    with pytest.raises(SystemExit) as refusal:
        measured({"prints": PRINTS}, "print")
    assert refusal.value.code == 2
    assert "no part print; there are prints" in capsys.readouterr().err


def test_the_list_says_when_a_part_was_measured_and_how_long_it_took(measured, capsys):
    measured({"prints": PRINTS}, "prints")
    capsys.readouterr()
    measured({"prints": PRINTS}, "--list")
    assert re.match(
        r"prints, measured on \d{4}-\d\d-\d\d, 0.0 minutes, 0.0 CPU-minutes:\n  echo", capsys.readouterr().out
    )


def test_the_parts_are_listed_without_being_run(measured, capsys):
    assert measured({"prints": PRINTS}, "--list") == (0, {})
    assert "prints, not measured:\n  echo" in capsys.readouterr().out


@pytest.mark.parametrize("name", PARTS)
def test_the_commands_of_a_part_are_ones_that_exist(name):
    for command in PARTS[name].commands:
        words = shlex.split(command)
        assert all((ROOT / word).exists() for word in words if word.startswith(("pipelines/", "tests/")))
        if "pipelines/train.py" in words:
            args = arguments.parse("", resume=True, argv=words[words.index("pipelines/train.py") + 1 :])
            path = run_config.CONFIGS / f"{args.workload}.yaml"
            config.load(path, workloads.find(args.workload).config, args.words)
            assert f"{args.workload}/{args.name}" in PARTS[name].runs
            assert args.name.startswith("evidence")
