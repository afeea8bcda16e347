"""The sizes from which comparators are built."""

import pytest

from models.images.comparator import build
from tests.models.images.comparator.small import SMALL


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "llama"}, "kind is 'llama'; known kinds: siamese, scorer"),
        ({"width": 0}, "width is 0; it must be 1 or more"),
        ({"size": 18}, "size 18 cannot be halved 2 times"),
        ({"widht": 8}, "unknown config key 'widht'; did you mean 'width'?"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(change, message):
    with pytest.raises(ValueError, match="^" + message.replace("?", r"\?")):
        build({"kind": "siamese", **SMALL, **change})
