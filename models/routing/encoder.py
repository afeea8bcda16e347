"""The parts shared by all encoders, node embedding and residual layer, and the graph transformer's attention."""

import torch
from torch import Tensor, nn

from models.routing.environment import RULES, Instances


class NodeEmbedding(nn.Module):
    """Embedding of coordinates, customers' demand as a share of the capacity and, optionally, of rules or asymmetry.

    A rule is its limit, and whether there is one (RouteFinder, Berto et al. 2024). A node's asymmetry, with one-way
    roads, is by how much ways from it are longer than ways to it, on average.
    """

    def __init__(self, width: int, rules: bool = False, one_way: bool = False):
        super().__init__()
        self.depot = nn.Linear(2, width)
        self.customer = nn.Linear(3, width)
        self.rules = nn.Linear(2 * RULES, width, bias=False) if rules else None
        self.asymmetry = nn.Linear(1, width, bias=False) if one_way else None

    def forward(self, instances: Instances, distance: Tensor) -> Tensor:
        """Return node states (B, N, D), with distances (B, N, N) from row to column."""
        locs, demand, capacity, rules, _ = instances
        features = torch.cat([locs, (demand / capacity[:, None])[..., None]], -1)
        nodes = torch.cat([self.depot(locs[:, :1]), self.customer(features[:, 1:])], 1)
        if self.asymmetry is not None:
            nodes = nodes + self.asymmetry((distance.mean(2) - distance.mean(1))[..., None])
        if self.rules is not None and rules is not None:
            limited = rules.isfinite() & (rules != 0)
            nodes = nodes + self.rules(torch.cat([rules.where(limited, 0), limited.float()], -1))
        return nodes


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


class DistanceBiasedAttention(nn.Module):
    """Multi-head attention with `a * d + b * d**2` added to its logits, where a and b are learned for each head.

    The bias by distance follows Graphormer (Ying et al. 2021), with the metric distance in place of the hop count. With
    one-way roads the way back has two weights more: a node reads both directions, as in MatNet (Kwon et al. 2021). No
    node number enters the computation: renumbering customers renumbers the output.
    """

    def __init__(self, width: int, heads: int, one_way: bool = False):
        super().__init__()
        self.heads = heads
        self.query_key_value = nn.Linear(width, 3 * width, bias=False)
        self.distance = nn.Parameter(torch.zeros(2, heads))
        self.back = nn.Parameter(torch.zeros(2, heads)) if one_way else None
        self.mix = nn.Linear(width, width)

    def forward(self, nodes: Tensor, distance: Tensor) -> Tensor:
        """Map node states (B, N, D) and distances (B, N, N) from row to column to states (B, N, D)."""
        batch, num_nodes, width = nodes.shape
        query, key, value = self.query_key_value(nodes).view(batch, num_nodes, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        linear, square = self.distance[:, None, :, None, None]
        bias = distance[:, None] * (linear + square * distance[:, None])  # (B, H, N, N)
        if self.back is not None:
            linear, square = self.back[:, None, :, None, None]
            bias = bias + distance.mT[:, None] * (linear + square * distance.mT[:, None])
        # Written out, because with a mask that needs a gradient the fused kernels fall back to a slower composite.
        scores = (query @ key.transpose(2, 3)) * (width // self.heads) ** -0.5
        mixed = (scores + bias.to(scores.dtype)).softmax(-1) @ value
        states: Tensor = self.mix(mixed.transpose(1, 2).reshape(batch, num_nodes, width))
        return states
