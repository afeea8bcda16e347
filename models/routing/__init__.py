"""Neural solvers for vehicle routing: encoders `gat`, `gt`, `dgt` and one pointer decoder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from models.routing.policy import RoutingPolicy


def build(config: dict[str, Any]) -> RoutingPolicy:
    """Return an untrained policy from the fields of RoutingConfig; raise ValueError for a field that does not fit."""
    from models.io import config_from
    from models.routing.policy import RoutingConfig, RoutingPolicy

    return RoutingPolicy(config_from(RoutingConfig, config))
