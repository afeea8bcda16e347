"""Requests that are nearly right: a value, a key, a byte, the path or the method is another."""

import copy
import json
import random
from typing import Any, NamedTuple

WRONG = [
    *(None, True, -1, 0, 1.5, 2**31, 2**64, 10**30, 1e308, float("nan"), float("inf")),
    *("", "x", "\ud800", "\x00", "data:,", "../../etc/passwd", "é" * 300, [], {}, [[]], [None], {"a": {}}),
]
METHODS = ("GET", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD")
KINDS = ("text/plain", "application/xml", "", "application/json; charset=utf-16", "multipart/form-data")


class Asked(NamedTuple):
    """A request."""

    path: str
    body: Any
    method: str = "POST"
    headers: dict[str, str] | None = None


def mutated(asked: Asked, seed: int) -> Asked:
    """Return the request with one to three changes, a function of the seed."""
    generator = random.Random(seed)
    for _ in range(generator.randint(1, 3)):
        asked = generator.choice((_value, _value, _value, _key, _bytes, _request))(asked, generator)
    return asked


def _places(tree: Any) -> list[tuple[Any, Any]]:
    """Return (container, key) of everything in a tree of JSON."""
    found = []
    for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ():
        found += [(tree, key), *_places(value)]
    return found


def _value(asked: Asked, generator: random.Random) -> Asked:
    body = copy.deepcopy(asked.body)
    places = _places(body)
    if not places:
        return asked._replace(body=generator.choice(WRONG))
    tree, key = generator.choice(places)
    tree[key] = copy.deepcopy(generator.choice(WRONG))
    return asked._replace(body=body)


def _key(asked: Asked, generator: random.Random) -> Asked:
    body = copy.deepcopy(asked.body)
    objects = [tree for tree, _ in _places(body) if isinstance(tree, dict)]
    if not objects:
        return asked
    tree = generator.choice(objects)
    if tree and generator.random() < 0.5:
        del tree[generator.choice(sorted(tree))]
    else:
        tree[generator.choice(("x", "__class__", "items", "\ud800", "settings"))] = generator.choice(WRONG)
    return asked._replace(body=body)


def _bytes(asked: Asked, generator: random.Random) -> Asked:
    data = bytearray(asked.body if isinstance(asked.body, bytes) else json.dumps(asked.body).encode())
    place = generator.randrange(len(data) or 1)
    change = generator.randrange(4)
    if change == 0:
        data = data[:place]
    elif change == 1 and data:
        data[place] = generator.randrange(256)
    elif change == 2:
        data[place:place] = generator.choice((b"[" * 5000, b"\xff\xfe", b'"', b"9" * 5000, b"NaN"))
    else:
        data = data + data
    return asked._replace(body=bytes(data))


def _request(asked: Asked, generator: random.Random) -> Asked:
    change = generator.randrange(3)
    if change == 0:
        return asked._replace(method=generator.choice(METHODS))
    if change == 1:
        return asked._replace(headers={"content-type": generator.choice(KINDS)})
    return asked._replace(
        path=generator.choice((asked.path + "/x", "/runs/x/y/predict", "/%00", "//", asked.path[:-2]))
    )
