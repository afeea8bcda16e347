"""Kinds and sizes of routing policies. Without torch: commands check their arguments before importing it."""

from dataclasses import dataclass

KINDS = ("gat", "gt", "dgt")
PRESETS = {
    "tiny": {"width": 64, "heads": 4, "layers": 2},
    "small": {"width": 128, "heads": 8, "layers": 3},
    "medium": {"width": 128, "heads": 8, "layers": 6},
    "large": {"width": 256, "heads": 16, "layers": 6},
}


@dataclass(frozen=True)
class RoutingConfig:
    """Kind and size of a routing policy."""

    kind: str = "gt"  # one of KINDS
    width: int = 128  # channels of a node state; a multiple of heads
    heads: int = 8
    layers: int = 3
    neighbors: int = 0  # k of the GAT encoder's nearest-neighbour graph; 0 is the complete graph
    spacing: bool = False  # measure distances in units of the mean spacing, for instances of many sizes
    rules: bool = False  # read windows, limits on routes and whether they are open
    one_way: bool = False  # read a matrix of travel costs, which may differ there and back
