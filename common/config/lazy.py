"""Imports that wait until they are needed."""

import pkgutil
from collections.abc import Callable
from typing import Any


def lazily(path: str) -> Callable[..., Any]:
    """Return a stand-in for `package.module:name`, with its `__module__`, that imports the module when it is called."""

    def call(*args: object, **kwargs: object) -> object:
        return pkgutil.resolve_name(path)(*args, **kwargs)

    call.__module__ = path.partition(":")[0]
    return call
