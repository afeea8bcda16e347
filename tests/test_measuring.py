"""The commands that measure: trackers beside training and the benchmark."""

import contextlib
import json
import sqlite3

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from pipelines.tracking.trackers import TRACKERS
from tests.stages import stage
from tests.test_stages import TINY


@pytest.mark.slow
def test_each_tracker_gets_the_records_and_the_reports_tables_and_pictures(tmp_path):
    """Trackers of tests/optional.txt, each by its name alone."""
    log_with = f"tracking.log_with=[{','.join(TRACKERS)}]"
    done = stage(tmp_path, "train.py", *TINY, log_with, "training.steps=4", fresh=True)
    assert done.returncode == 0, done.stderr
    done = stage(tmp_path, "evaluate.py", fresh=True)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "wandb").exists()
    folder = tmp_path / "runs/cvrp/default/trackers"

    accumulated = {}
    for path in sorted(folder.rglob("events.out.tfevents.*")):
        events = EventAccumulator(str(path)).Reload()
        accumulated |= {tag: len(events.Scalars(tag)) for tag in events.Tags()["scalars"]}
        accumulated |= {tag: len(events.Images(tag)) for tag in events.Tags()["images"]}
        accumulated |= dict.fromkeys(events.Tags()["tensors"], 1)
    assert accumulated["train/cost"] == 4
    assert accumulated["test/text_summary"] == 1
    assert sum(tag.startswith("0") for tag in accumulated) >= 3

    with contextlib.closing(sqlite3.connect(next(folder.glob("cvrp-default.db")))) as database:
        rows = [bytes(row).decode() for (row,) in database.execute("select metrics from metrics")]
    assert sum("train/cost" in row for row in rows) == 4
    assert any('"test"' in row and "savings (Clarke-Wright)" in row for row in rows)
    assert len(list((folder / "media").rglob("*.png"))) >= 3

    training, evaluation = sorted((folder / "wandb").glob("offline-run-*"))
    assert b"train/cost" in next(training.glob("run-*.wandb")).read_bytes()
    assert list((evaluation / "files/media/table").glob("test_*.json"))
    assert len(list((evaluation / "files/media/images").glob("*.png"))) >= 3


@pytest.mark.slow
def test_benchmark_ends_with_one_json_line(tmp_path):
    (temporary := tmp_path / "temporary").mkdir()
    done = stage(tmp_path, "benchmark.py", *TINY, "--steps", "3", TMPDIR=str(temporary))
    assert done.returncode == 0, done.stderr
    assert not list(temporary.glob("benchmark-*"))
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["workload"] == "cvrp"
    assert result["examples_per_s"] == pytest.approx(8 / result["step_s"])
    assert not (tmp_path / "runs").exists()
