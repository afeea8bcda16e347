"""HTML from templates in which every value is escaped: this folder's files, and the fragments of workloads."""

import re
from functools import cache
from pathlib import Path

from jinja2 import FileSystemLoader
from markupsafe import Markup

from common import browser
from common.foreign_text import printable

NO_SPACE = re.compile("[^\\n\\t\\u00a0\\u1680\\u2000-\\u200a\\u202f\\u205f\\u3000]+")


def fragment(template: str, **values: object) -> Markup:
    """Return HTML from a jinja2 template. Text among `values` is escaped, Markup is taken as it is."""
    return Markup(COMPILED(template).render(values))


def beside(module: str, name: str, **values: object) -> Markup:
    """Return HTML from a template beside a module, given by its `__file__`, as `fragment` does."""
    return fragment(Path(module).with_name(name).read_text(), **values)


def document(name: str, **values: object) -> Markup:
    """Return HTML from one of this folder's templates, as `fragment` does."""
    return Markup(ENVIRONMENT.get_template(name).render(values))


def printable_lines(text: str) -> str:
    """Escape the unprintable characters of a text, except line breaks, tabs and Unicode spaces."""
    return NO_SPACE.sub(lambda part: printable(part[0]), text)


def shown(value: object) -> str:
    """Return a number, interval or word as readable text; "" for None."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1000 else f"{value:.0f}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(shown(item) for item in value) + "]"
    return printable(str(value))


def _printable(value: object) -> object:
    """Escape control characters in text; None shows as nothing."""
    if value is None:
        return ""
    return printable_lines(value) if isinstance(value, str) and not isinstance(value, Markup) else value


LOADER = FileSystemLoader([Path(__file__).parent, browser.FOLDER])
ENVIRONMENT = browser.TEMPLATES(loader=LOADER, lstrip_blocks=True, finalize=_printable)
ENVIRONMENT.filters["shown"] = shown
COMPILED = cache(ENVIRONMENT.from_string)
