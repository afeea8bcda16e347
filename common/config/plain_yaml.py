"""The subset of YAML for configs: no aliases, which can expand to gigabytes, no tags, and no key twice."""

from collections.abc import Hashable
from typing import Any

import yaml

from common.foreign_text import printable

MOST_BYTES, MOST_NODES, DEEPEST = 2**16, 5000, 16


def parse(data: bytes) -> Any:
    """Parse YAML. Raises ValueError with the problem and its line."""
    if len(data) > MOST_BYTES:
        raise ValueError(f"it is larger than the {MOST_BYTES} bytes that a config may have")
    try:
        return yaml.load(data.decode(), _Loader)
    except yaml.YAMLError as error:
        raise ValueError(f"it is not YAML: {' '.join(str(error).split())}") from error


class _Loader(yaml.SafeLoader):
    def __init__(self, text: str):
        super().__init__(text)
        self.nodes = self.depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event: yaml.Event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent):
            _refuse(event, f"*{event.anchor} is an alias, which configs cannot have; write its value again")
        if (tag := getattr(event, "tag", None)) is not None:
            _refuse(event, f"{tag} is a tag, which configs cannot have; leave it out")
        self.nodes, self.depth = self.nodes + 1, self.depth + 1
        if self.nodes > MOST_NODES or self.depth > DEEPEST:
            _refuse(event, f"a config has {MOST_NODES} values or fewer, in {DEEPEST} levels or fewer")
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, object]:
        seen = set()
        for key, _ in node.value:
            if key.tag != self.DEFAULT_SCALAR_TAG:
                given = key.value if isinstance(key, yaml.ScalarNode) else "of several values"
                _refuse(key, f"the key {given} is not text; put it in quotes")
            if key.value in seen:
                _refuse(key, f"the key {key.value} is given twice; leave one of them out")
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def _integer(loader: _Loader, node: yaml.ScalarNode) -> int:
    if len(node.value) > 70 or not -(2**63) <= (value := loader.construct_yaml_int(node)) < 2**64:
        _refuse(node, "a whole number needs more than 64 bits")
    return value


_Loader.add_constructor("tag:yaml.org,2002:int", _integer)


def _refuse(where: yaml.Event | yaml.Node, why: str) -> None:
    assert where.start_mark is not None, "a parsed node has a position"
    raise ValueError(f"line {where.start_mark.line + 1}: {printable(why, 300)}")
