"""The base class of all models, with `predict` for users' inputs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from common.config import Section, checked
from common.workers import batched
from models.inputs import Input

AT_ONCE = 64  # inputs that are answered together

AnInput = TypeVar("AnInput", bound=Input)
Settings = TypeVar("Settings", bound=Section)


class Model(nn.Module):
    """The interface of all families, by which models are saved, exported and asked for predictions."""

    family: str  # a key of FAMILIES
    pipeline_tag = "other"  # the task by which Hugging Face's hub lists it
    # Sections of the model card: heading -> Markdown.
    card: Mapping[str, str] = MappingProxyType({})
    config: Any  # a dataclass of all that determines the model; a family that is a class annotates its own
    # Class names of layers, under transformers' name. Sharded training gathers the weights of one such layer at a time,
    # when it is called, and all other weights together.
    _no_split_modules: Sequence[str] = ()
    input_type: type[Input]  # what `predict` answers, and its settings; a family without them has no predictions
    settings_type: type[Section]

    def predict(
        self, inputs: Iterable[Mapping[str, object] | Input], at_once: int = AT_ONCE, **settings: object
    ) -> Iterator[dict[str, Any]]:
        """Yield an answer to each input, in their order; both can be written as JSON.

        An unusable input gets {"error": what is wrong} in place of its answer. Up to `at_once` inputs are read before
        the first answer is given, which changes answers by rounding only. `input_type` describes inputs,
        `settings_type` settings. Raises ValueError for unknown or wrong settings, before the first answer is asked for.
        """
        if not hasattr(self, "input_type"):
            raise ValueError(f"models of the family {self.family} have no predictions; use what {type(self)} offers")
        return self._answered(inputs, at_once, checked(self.settings_type, settings, "settings"))

    def _answered(
        self, inputs: Iterable[Mapping[str, object] | Input], at_once: int, settings: Section
    ) -> Iterator[dict[str, object]]:
        for part in batched(inputs, at_once):
            usable, errors = [], []
            for given in part:
                try:
                    usable.append(self.prepared(_as(self.input_type, given), settings))
                    errors.append("")
                except ValueError as error:
                    errors.append(str(error))
            with torch.no_grad():
                answers = iter(list(self.answers(usable, settings)) if usable else [])
            for wrong in errors:
                yield {"error": wrong} if wrong else next(answers)

    def takes(self, given: Any) -> bool:
        """Return whether an input, an `input_type`, is for this one of a run's models."""
        return True

    def prepared(self, given: Any, settings: Any) -> object:
        """Convert an input for `answers`. Raises ValueError for an unusable one."""
        return given

    def answers(self, prepared: Sequence[Any], settings: Any) -> Iterable[dict[str, Any]]:
        """Return the answers to one or more inputs together."""
        raise NotImplementedError

    def renewed(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Convert tensors stored by an older version."""
        return tensors

    def check(self) -> None:
        """Raise ValueError for stored values that no model of the family can have."""

    def example(self) -> Mapping[str, object]:
        """Return keyword arguments for a deterministic forward pass, by which exports are compared with the model."""
        raise NotImplementedError


def asked(
    input_type: type[AnInput], settings_type: type[Settings], given: object, settings: object
) -> tuple[AnInput, Settings]:
    """Validate an input and settings as objects of these classes. Raises ValueError for what does not fit them."""
    return _as(input_type, given), checked(settings_type, settings, "settings")


def _as(input_type: type[AnInput], given: object) -> AnInput:
    return given if isinstance(given, input_type) else checked(input_type, given, "an input")
