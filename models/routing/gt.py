"""Graph transformer with distance bias: attention among all nodes, biased by the distances between them.

No node number enters the computation, so it is permutation equivariant: renumbering customers renumbers the output.
"""

import torch
from torch import Tensor, nn


class DistanceBiasedAttention(nn.Module):
    """Multi-head attention with `a * d + b * d**2` added to its logits, where a and b are learned for each head.

    The bias by distance follows Graphormer (Ying et al. 2021), with the metric distance in place of the hop count.
    """

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.query_key_value = nn.Linear(width, 3 * width, bias=False)
        self.distance = nn.Parameter(torch.zeros(2, heads))
        self.mix = nn.Linear(width, width)

    def forward(self, nodes: Tensor, distance: Tensor) -> Tensor:
        """Map node states (B, N, D) and distances (B, N, N) to states (B, N, D)."""
        batch, num_nodes, width = nodes.shape
        parts = self.query_key_value(nodes).view(batch, num_nodes, 3, self.heads, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        linear, square = self.distance[:, None, :, None, None]
        bias = distance[:, None] * (linear + square * distance[:, None])  # (B, H, N, N)
        # Written out, because with a mask that needs a gradient the fused kernels fall back to a slower composite.
        scores = (query @ key.transpose(2, 3)) * (width // self.heads) ** -0.5
        mixed = (scores + bias.to(scores.dtype)).softmax(-1) @ value
        states: Tensor = self.mix(mixed.transpose(1, 2).reshape(batch, num_nodes, width))
        return states
