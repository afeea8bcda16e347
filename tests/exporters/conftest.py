"""Runs to export."""

import io as streams
import json
import logging
from pathlib import Path

import pytest

from models import io
from models.routing.config import RoutingConfig
from models.routing.policy import RoutingPolicy

EVALUATION = {
    "cost": 6.25,
    "cost_interval": [6.2, 6.3],
    "gap": None,
    "n": 1000,
    "decode": "dgt, multistart | 8",
    "timing": {"seconds": 12.0},
    "table": [{"method": "savings", "cost": 6.5}, {"method": "dgt", "cost": 6.25, "gap %": 1.125}],
}


@pytest.fixture
def logged():
    """What was logged so far, as text. Pytest's own `caplog` is off: it would cost every test half a millisecond."""
    handler = logging.StreamHandler(streams.StringIO())
    logging.getLogger().addHandler(handler)
    yield handler.stream.getvalue
    logging.getLogger().removeHandler(handler)


@pytest.fixture
def run(tmp_path) -> Path:
    """A run folder as training and evaluation leave it."""
    run = tmp_path / "cvrp" / "tiny"
    for which in ("best", "last"):
        io.save(RoutingPolicy(RoutingConfig("dgt", width=8, heads=2, layers=1)), run / "model" / which)
    (run / "evaluations").mkdir()
    (run / "evaluations" / "test.json").write_text(json.dumps(EVALUATION))
    (run / "evaluations" / "test.tours.json").write_text("[1, 2]")
    (run / "config.yaml").write_text("seed: 7\nmodel:\n  kind: dgt  # ``` inside\n")
    versions = {"torch": "2.13.0"}
    (run / "provenance.json").write_text(
        json.dumps({"command": ["train.py"], "commit": "abc123", "versions": versions})
    )
    return run
