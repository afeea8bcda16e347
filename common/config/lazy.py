"""Imports that wait until they are needed."""

import importlib
from collections.abc import Callable
from typing import Any


def lazily(path: str) -> Callable[..., Any]:
    """Return a stand-in for `package.module:name`, with its `__module__`, that imports the module when it is called."""
    module, _, name = path.partition(":")

    def call(*args: object, **kwargs: object) -> object:
        return getattr(importlib.import_module(module), name)(*args, **kwargs)

    call.__module__ = module
    return call
