"""Neural solvers for vehicle routing: encoders `gat`, `gt`, `dgt` and one pointer decoder."""

from typing import Any

from models.io import config_from
from models.routing.policy import RoutingConfig, RoutingPolicy


def build(config: dict[str, Any]) -> RoutingPolicy:
    """Return an untrained policy from the fields of RoutingConfig; raise ValueError for a field that does not fit."""
    return RoutingPolicy(config_from(RoutingConfig, config))
