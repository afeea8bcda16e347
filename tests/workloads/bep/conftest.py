"""Fixtures of several test files."""

import pytest

from tests.workloads.bep.firm import prose, written


@pytest.fixture
def firm(tmp_path):
    """Ten documents, three of them versions of one."""
    texts = {f"plan-{letter}": prose(seed, 1000) for seed, letter in enumerate("abcdefgh")}
    texts["plan-a-rev2.md"] = texts["plan-a"].replace("Plan", "Program", 1) + "\n\nA new last sentence."
    texts["old/plan-a-rev0"] = texts["plan-a"].replace(". ", ".  ")
    return written(tmp_path / "firm", texts)
