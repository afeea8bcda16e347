"""Reading one document as the tests of all formats do."""

from pathlib import Path

import pytest

from common.errors import UserError
from pipelines.workloads.bep.documents import sources

LIMIT = 1_000_000


def read(path: Path, limit: int = LIMIT) -> sources.Document:
    return sources.read(path, path.name, limit)


def refusal(path: Path, limit: int = LIMIT) -> str:
    with pytest.raises(UserError) as error:
        read(path, limit)
    assert "\n" not in str(error.value)
    assert str(error.value).startswith(f"{path.name}: ")
    return str(error.value)
