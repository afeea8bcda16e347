"""Help on the keys of a config: name, type, default, choices and meaning."""

import textwrap
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import yaml
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from common.config import Choice, Section

WIDTH = 80  # columns of a terminal
NAMES: dict[object, str] = {int: "integer", float: "number", bool: "true / false", str: "text", type(None): "null"}
CHOICES: dict[object, tuple[str, ...]] = {bool: ("true", "false"), type(None): ("null",)}
BOUNDS = ("gt", "ge", "lt", "le")
FIRST = ("data", "model", "training", "evaluation")  # sections that users change most


@dataclass(frozen=True)
class Key:
    """One key of a config."""

    name: str  # dotted
    type: str  # with its bounds, or the values to choose from
    default: object
    choices: tuple[str, ...]  # empty: any value of the type
    description: str


@dataclass(frozen=True)
class Group:
    """The keys of one section."""

    name: str  # of the section, "" for keys outside of any
    description: str
    keys: tuple[Key, ...]


def groups(cls: type[Section]) -> list[Group]:
    """Return the keys of a config, section by section."""
    found: dict[str, list[Key]] = {}
    about = {"": ""}
    for section, owner, name, field, default in _fields(cls):
        about.setdefault(section, " ".join((owner.__doc__ or "").split("\n\n")[0].split()))
        tables = [each for each in field.metadata if isinstance(each, Choice)]
        annotation = typing.Annotated[field.annotation, tables[0]] if tables else field.annotation
        kind, choices = _in_words(annotation, _bounds(field.metadata))
        dotted = f"{section}.{name}" if section else name
        found.setdefault(section, []).append(Key(dotted, kind, default, choices, field.description or ""))
    order = sorted(found, key=lambda section: FIRST.index(section) if section in FIRST else len(FIRST))
    return [Group(section, about[section], tuple(found[section])) for section in order]


def _fields(
    cls: type[Section], default: Section | None = None, section: str = ""
) -> Iterator[tuple[str, type[Section], str, FieldInfo, object]]:
    for name, field in cls.model_fields.items():
        value = getattr(default, name) if default is not None else field.get_default(call_default_factory=True)
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            inner = value if isinstance(value, Section) else None
            yield from _fields(field.annotation, inner, f"{section}.{name}" if section else name)
        else:
            yield section, cls, name, field, value


def _in_words(annotation: object, bounds: Mapping[str, float]) -> tuple[str, tuple[str, ...]]:
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        tables = [tuple(each.table) for each in parts[1:] if isinstance(each, Choice)]
        own = _bounds([each for part in parts[1:] for each in getattr(part, "metadata", ())])
        return (" / ".join(tables[0]), tables[0]) if tables else _in_words(parts[0], {**bounds, **own})
    if origin is typing.Literal:
        return " / ".join(map(str, parts)), tuple(map(str, parts))
    if origin in (typing.Union, types.UnionType):
        found = [_in_words(part, bounds) for part in parts]
        return " / ".join(text for text, _ in found), tuple(choice for _, choices in found for choice in choices)
    if origin is tuple:
        inner = [_in_words(part, bounds) for part in parts if part is not ...]
        texts = [text for text, _ in inner] + ["..."] * (... in parts)
        return f"[{', '.join(texts)}]", inner[0][1]
    if annotation in (int, float):
        return _bounded(NAMES[annotation], bounds), ()
    return NAMES.get(annotation) or str(getattr(annotation, "__name__", annotation)), CHOICES.get(annotation, ())


def _bounds(metadata: Sequence[object]) -> dict[str, float]:
    return {name: getattr(each, name) for each in metadata for name in BOUNDS if hasattr(each, name)}


def _bounded(name: str, bounds: Mapping[str, float]) -> str:
    """Return `0 < number < 1`, and `integer >= 1` where there is no upper bound."""
    low = next((f"{bounds[each]:.12g} {sign} " for each, sign in (("gt", "<"), ("ge", "<=")) if each in bounds), "")
    high = next((f" {sign} {bounds[each]:.12g}" for each, sign in (("lt", "<"), ("le", "<=")) if each in bounds), "")
    if low and not high:
        number, sign = low.split()
        return f"{name} {sign.replace('<', '>')} {number}"
    return f"{low}{name}{high}"


def shown(value: object) -> str:
    """Return a value as one line of YAML."""
    if isinstance(value, tuple):
        value = list(value)
    text = yaml.safe_dump(value, default_flow_style=True, width=10**6, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("\n...").strip()


def as_text(found: Sequence[Group], values: Mapping[str, object]) -> str:
    """Return the keys as text of WIDTH columns; `values` are shown in place of the defaults."""
    return "\n\n".join(_group_text(group, values) for group in found)


def _group_text(group: Group, values: Mapping[str, object]) -> str:
    lines, inner = textwrap.wrap(f"{group.name}: {group.description}", WIDTH) if group.name else [], " " * 6
    for key in group.keys:
        value = values.get(key.name, key.default)
        head, kind = key.name if value is PydanticUndefined else f"{key.name}={shown(value)}", f"({key.type})"
        parts = [(f"{head}  {kind}", "  ")] if len(head + kind) <= WIDTH - 4 else [(head, "  "), (kind, inner)]
        for text, indent in (*parts, (key.description, inner)):
            lines += textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=inner, break_on_hyphens=False)
    return "\n".join(lines)
