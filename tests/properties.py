"""How often a property is tried."""

import os


def examples(count: int) -> int:
    """Return a quarter of `count`, as in tests/conftest.py, or all if HYPOTHESIS_PROFILE is set, as in .ci/run."""
    return count if os.environ.get("HYPOTHESIS_PROFILE", "few") != "few" else max(25, count // 4)
