"""Neural solvers for vehicle routing: encoders `gat`, `gt`, `dgt` and one pointer decoder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from models.routing.policy import RoutingPolicy


def build(config: Mapping[str, object]) -> RoutingPolicy:
    """Return an untrained policy from the fields of RoutingConfig; raise ValueError for a field that does not fit."""
    from models.io import config_from
    from models.routing.config import RoutingConfig
    from models.routing.policy import RoutingPolicy

    return RoutingPolicy(config_from(RoutingConfig, config))
