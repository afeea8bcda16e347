"""Answers of a model to inputs as users have them; what is wrong with an input takes the place of its answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import torch

from common.config import Section, checked
from common.workers import batched
from models.inputs import Input

AT_ONCE = 64  # inputs that are answered together


class Model(Protocol):
    """What `models.io.Model` has for predictions."""

    family: str
    input_type: type[Input]
    settings_type: type[Section]

    def prepared(self, given: Any, settings: Any) -> Any:
        """Return what `answers` takes of an input."""

    def answers(self, prepared: Sequence[Any], settings: Any) -> Iterable[dict[str, Any]]:
        """Return the answers to one or more inputs together."""


def predictions(
    model: Model, inputs: Iterable[Mapping[str, Any] | Input], at_once: int, settings: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """Do what `Model.predict` says. Settings are refused when this is called, before the first answer is asked for."""
    if not hasattr(model, "input_type"):
        raise ValueError(f"models of the family {model.family} have no predictions; use what {type(model)} offers")
    return _answered(model, inputs, at_once, checked(model.settings_type, settings, "settings"))


def asked(model: Model, given: Mapping[str, Any] | Input, settings: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return an input and settings as the model's classes of them. Raises ValueError for what does not fit them."""
    given = given if isinstance(given, Input) else checked(model.input_type, given, "an input")
    return given, checked(model.settings_type, settings, "settings")


def _answered(
    model: Model, inputs: Iterable[Mapping[str, Any] | Input], at_once: int, settings: Section
) -> Iterator[dict[str, Any]]:
    for part in batched(inputs, at_once):
        found = [_prepared(model, each, settings) for each in part]
        usable = [prepared for prepared, error in found if error is None]
        with torch.no_grad():
            answers = iter(list(model.answers(usable, settings)) if usable else [])
        for _, error in found:
            yield next(answers) if error is None else {"error": error}


def _prepared(model: Model, given: Mapping[str, Any] | Input, settings: Section) -> tuple[Any, str | None]:
    """Return what the model answers, or what is wrong."""
    try:
        given = given if isinstance(given, Input) else checked(model.input_type, given, "an input")
        return model.prepared(given, settings), None
    except ValueError as error:
        return None, str(error)
