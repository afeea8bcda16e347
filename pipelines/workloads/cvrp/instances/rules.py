"""Problems beyond the plain CVRP to train on: which rules an instance has, and how they are drawn.

Windows, services and limits are those of Liu et al. (2024) and Berto et al. (2024, RouteFinder), in the unit square,
where a unit of distance takes one of time. A new problem is one entry of PROBLEMS. torch is imported only when needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

HOURS = 4.6  # of the depot
SERVICE, WINDOW = (0.15, 0.18), (0.18, 0.20)  # least and most
LONGEST = 3.0  # limit on routes at most; at least, it allows a route to the farthest customer alone
SPARE = 0.01  # at least, of such a route


class Drawn(NamedTuple):
    """The probabilities that an instance has each rule."""

    windows: float = 0
    length: float = 0
    duration: float = 0
    open_routes: float = 0

    def numbers(self, num_nodes: int) -> int:
        """Return the number of uniform numbers for an instance."""
        return 3 * num_nodes + 2 * len(self) if any(self) else 0

    def rules(self, locs: Tensor, numbers: Tensor) -> Tensor:
        """Return the rules (B, N, 6) of instances at `locs` (B, N, 2), as `Instances` has them, from uniform numbers.

        Every customer can be served by a route alone.
        """
        import torch

        service, width, start, limits, coins = numbers.split([locs.shape[1]] * 3 + [len(self)] * 2, 1)
        windows, length, duration, opened = (coins < torch.tensor(self, device=coins.device))[..., None].unbind(1)
        away = (locs - locs[:, :1]).norm(dim=-1)
        service = SERVICE[0] + (SERVICE[1] - SERVICE[0]) * service
        width = WINDOW[0] + (WINDOW[1] - WINDOW[0]) * width
        opens = away + (HOURS - service - width - 2 * away) * start
        most = LONGEST + (LONGEST - 2 * away.max(1, keepdim=True).values - SPARE) * (limits[:, :2] - 1)
        timed = (windows | duration).expand_as(away)
        opening, closing = opens.where(windows, 0), (opens + width).where(windows, torch.inf)
        longest = most[:, :1].where(length, torch.inf).expand_as(away)
        limit = (most[:, 1:] + SERVICE[1]).where(duration, torch.inf).expand_as(away)
        service, opened = service.where(timed, 0), opened.float().expand_as(away)
        found = torch.stack([opening, closing, service, longest, limit, opened], -1)
        found[:, 0, 0], found[:, 0, 2] = 0, 0
        found[:, 0, 1:2] = torch.where(windows, HOURS, torch.inf)
        return found


PROBLEMS = {
    "cvrp": Drawn(),
    "vrptw": Drawn(windows=1),
    "vrpl": Drawn(length=1),
    "ovrp": Drawn(open_routes=1),
    "mixed": Drawn(0.5, 0.5, 0.5, 0.5),
}
