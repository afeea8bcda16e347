"""Dynamic graph transformer: node states change while the tour grows.

The encoder is the graph transformer's. Each step adds a few channels to every node's encoding, computed from the
progress of the tour: whether the node still waits, the capacity left after it, its distance from the current node, the
saving of going there directly instead of through the depot (Clarke and Wright 1964), its distance from the depot, and
the total demand left. Attention and pointer read the extended states. No channel depends on the order in which
customers were served, so the states of all steps of a finished tour can be computed at once.
"""

import torch
from torch import Tensor, nn

from models.routing.environment import DEPOT, Instances, State

CHANNELS = 8  # M
FEATURES = 6


class DynamicState(nn.Module):
    """Dynamic channels of the nodes, and their contributions to the decoder's three products."""

    def __init__(self, width: int):
        super().__init__()
        self.hidden = nn.Linear(FEATURES, CHANNELS)
        self.key = nn.Linear(width, CHANNELS, bias=False)
        self.value = nn.Linear(CHANNELS, width, bias=False)
        self.pointer = nn.Linear(width, CHANNELS, bias=False)
        self.direct = nn.Linear(CHANNELS, 1, bias=False)

    def weights(self) -> Tensor:
        """Return all weights in one row, in the order and the layout of native code (`Dynamic` in decoder.h)."""
        hidden, turned = self.hidden, (self.key.weight.T, self.value.weight.T, self.pointer.weight.T)
        return torch.cat([each.flatten() for each in (hidden.weight, hidden.bias, *turned, self.direct.weight)])

    def forward(self, instances: Instances, state: State, distance: Tensor, away: Tensor) -> Tensor:
        """Return channels (B, M, N, Q); `away` (B, N, Q) is the `distance` (B, N, N) from each query's node."""
        share = instances.demand / instances.capacity[:, None]
        load = state.load / instances.capacity[:, None]
        waiting = state.waiting.float()
        waiting = torch.cat([torch.zeros_like(waiting[:, :1]), waiting[:, 1:]], 1)
        from_depot = distance[:, DEPOT, :, None]
        left = torch.einsum("bn,bnq->bq", share, waiting)[:, None] / distance.shape[1] ** 0.5
        ways = away, away[:, :1] + from_depot - away, from_depot.expand_as(away)
        features = torch.stack([waiting, load[:, None] - share[..., None], *ways, left.expand_as(away)], 1)
        batch, _, num_nodes, queries = features.shape
        channels = self.hidden.weight @ features.flatten(2) + self.hidden.bias[:, None]
        return torch.relu(channels).view(batch, -1, num_nodes, queries)
