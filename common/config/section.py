"""Parts of a config, each a closed and frozen pydantic model."""

import copy
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Unpack

from pydantic import BaseModel, ConfigDict
from pydantic_core import core_schema


@dataclass(frozen=True)
class Choice:
    """Restricts a `str` field to the keys of a table: `Annotated[str, Choice(TABLE)]`."""

    table: Collection[str]

    def __get_pydantic_core_schema__(self, source: object, handler: object) -> core_schema.CoreSchema:
        return core_schema.literal_schema(list(self.table))


class Section(BaseModel):
    """Part of a config, closed and frozen. `class Own(Training, defaults={"steps": 5})` changes inherited defaults."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False)
    one_of: ClassVar[tuple[str, ...]] = ()  # keys of which one is given: a word for it alone makes the others null

    def __init_subclass__(cls, defaults: Mapping[str, object] | None = None, **kwargs: Unpack[ConfigDict]) -> None:
        super().__init_subclass__(**kwargs)  # `defaults` is for the method below, which runs once fields are known

    @classmethod
    def __pydantic_init_subclass__(cls, defaults: Mapping[str, object] | None = None, **kwargs: object) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        for name, value in (defaults or {}).items():
            cls.model_fields[name] = copy.copy(cls.model_fields[name])
            cls.model_fields[name].default = value
        if defaults:
            cls.model_rebuild(force=True)


def dotted(cls: type[Section], prefix: str = "") -> Iterator[str]:
    """Yield the dotted names of all sections and keys."""
    for name, field in cls.model_fields.items():
        yield prefix + name
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            yield from dotted(field.annotation, f"{prefix}{name}.")
