"""Values in templates: escaped, readable, and printable whatever they hold."""

import pytest
from jinja2 import UndefinedError
from markupsafe import Markup

from pipelines.report.markup import fragment


def test_text_is_escaped_and_markup_is_not():
    assert fragment("<p>{{ a }}{{ b }}</p>", a="<i>", b=Markup("<b>")) == "<p>&lt;i&gt;<b></p>"
    assert fragment('<p title="{{ a }}">', a="\"'>") == '<p title="&#34;&#39;&gt;">'


def test_what_cannot_be_printed_is_told_and_lines_and_spaces_stay():
    text = fragment("{{ a }}", a="a\x1b[2J\nb\tc\N{NO-BREAK SPACE}d\N{RIGHT-TO-LEFT OVERRIDE}\udcff\r")
    assert text == "a\\x1b[2J\nb\tc\N{NO-BREAK SPACE}d\\u202e\\udcff\\r"
    assert text.encode()


def test_none_is_nothing_and_a_value_that_is_missing_is_an_error():
    assert fragment("[{{ a }}]", a=None) == "[]"
    with pytest.raises(UndefinedError):
        fragment("{{ b }}", a=1)
