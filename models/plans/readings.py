"""Documents that were read, each once: as one grows, its reader goes on."""

import contextlib
from collections.abc import Callable, Iterator

import numpy as np
import torch

from models.plans.characters import Characters
from models.plans.mixture_reader import MixtureReader

MOST_KEPT = 1_000_000  # characters of the documents kept; their counts take up to 0.5 kB each


@contextlib.contextmanager
def single_thread() -> Iterator[None]:
    """Compute on one thread: for products as small as these, others would only wait for one another."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class Readings:
    """Readers of the documents asked for last."""

    def __init__(self, begun: Callable[[], MixtureReader], characters: Characters):
        self.begun, self.characters = begun, characters
        self.readers: dict[str, MixtureReader] = {}  # the last used last

    def read(self, document: str, most: int | None = None) -> bool:
        """Read a document from where it has grown since, at most so many characters; return whether it is read."""
        known = self._longest(document)
        reader = self.readers.pop(known) if known else self.begun()
        until = len(document) if most is None else min(len(document), len(known) + most)
        reader.skim(np.array(self.characters.encode(document[len(known) : until]), np.int64))
        self.readers[document[:until]] = reader
        while sum(map(len, self.readers)) > MOST_KEPT and len(self.readers) > 1:
            self.readers.pop(next(iter(self.readers)))
        return until == len(document)

    def reader(self, document: str) -> MixtureReader:
        """Return a reader of a document, for one use."""
        self.read(document)
        return self.readers[document].fork()

    def _longest(self, document: str) -> str:
        return max((each for each in self.readers if document.startswith(each)), key=len, default="")
