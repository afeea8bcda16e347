"""The config's choices are the keys of the tables, so that a new entry of a table is a choice at once."""

import pytest

from common.config import build
from common.errors import UserError
from models.routing.config import KINDS, PRESETS
from models.routing.decodes import DECODES
from pipelines.workloads.cvrp.config import Config
from pipelines.workloads.cvrp.instances.distributions import DISTRIBUTIONS
from pipelines.workloads.cvrp.solvers.heuristics import HEURISTICS

CHOICES = {
    "data.distribution": DISTRIBUTIONS,
    "model.kind": (*KINDS, *HEURISTICS),
    "model.preset": PRESETS,
    "evaluation.decode": DECODES,
}


@pytest.mark.parametrize("key", CHOICES)
def test_every_key_of_the_table_is_a_choice_and_nothing_else_is(key):
    section, _, name = key.partition(".")
    for choice in CHOICES[key]:
        config = build(Config, {}, [f"{key}={choice}"], "made")
        assert getattr(getattr(config, section), name) == choice
    *others, last = map(repr, CHOICES[key])
    with pytest.raises(UserError, match=f"{key}: Input should be {', '.join(others)} or {last} .given 'other'."):
        build(Config, {}, [f"{key}=other"], "made")


def test_the_help_describes_every_distribution():
    description = Config.model_fields["data"].annotation.model_fields["distribution"].description
    assert all(f"{name}: {entry.description}" in description for name, entry in DISTRIBUTIONS.items())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["training.best_of=21"], "training.best_of=21 is more than the 20 tours of an instance"),
        (["training.best_of=9", "training.starts=8"], "training.best_of=9 is more than the 8 tours of an instance"),
        (
            ["training.best_of=2", "training.baseline=rollout"],
            "best_of=2 has no meaning with training.baseline=rollout",
        ),
    ],
)
def test_the_best_of_more_tours_than_there_are_is_refused(words, message):
    with pytest.raises(UserError, match=message):
        build(Config, {}, ["training.steps=1", *words], "made")
