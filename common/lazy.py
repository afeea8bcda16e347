"""Imports put off until they are needed."""

import importlib
from collections.abc import Callable
from typing import Any


def lazily(path: str) -> Callable[..., Any]:
    """The function or class `package.module:name`, whose module is imported when it is called.

    So a workload's config is read, and refused, without waiting for the libraries that its stages need.
    """
    module, _, name = path.partition(":")

    def call(*args: Any, **kwargs: Any) -> Any:
        return getattr(importlib.import_module(module), name)(*args, **kwargs)

    return call
