"""The parts shared by all encoders: the node embedding and the residual layer around an attention."""

import torch
from torch import Tensor, nn

from models.routing.environment import Instances


class NodeEmbedding(nn.Module):
    """Embedding of coordinates and, for customers, of the demand as a share of the capacity."""

    def __init__(self, width: int):
        super().__init__()
        self.depot = nn.Linear(2, width)
        self.customer = nn.Linear(3, width)

    def forward(self, instances: Instances) -> Tensor:
        """Return node states (B, N, D)."""
        locs, demand, capacity = instances
        features = torch.cat([locs, (demand / capacity[:, None])[..., None]], -1)
        return torch.cat([self.depot(locs[:, :1]), self.customer(features[:, 1:])], 1)


class EncoderLayer(nn.Module):
    """Pre-norm residual layer: an attention over nodes, then a feed-forward network.

    It uses layer norm, not the batch norm of Kool et al. 2019: a tour must not depend on the rest of the batch.
    """

    def __init__(self, width: int, attention: nn.Module):
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = attention
        self.feed_forward_norm = nn.LayerNorm(width)
        self.feed_forward = nn.Sequential(nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width))

    def forward(self, nodes: Tensor, graph: Tensor | tuple[Tensor, Tensor]) -> Tensor:
        """Map node states (B, N, D) and the graph, in the form that the attention expects, to states (B, N, D)."""
        nodes = nodes + self.attention(self.attention_norm(nodes), graph)
        states: Tensor = nodes + self.feed_forward(self.feed_forward_norm(nodes))
        return states
