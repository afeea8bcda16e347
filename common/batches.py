"""Lists of items that are worked on together."""

import itertools
from collections.abc import Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")


def batched(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Yield lists of up to `size` items, each as soon as it is full."""
    remaining = iter(items)
    while part := list(itertools.islice(remaining, size)):
        yield part
