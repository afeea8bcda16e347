"""The pointer decoder: one attention over the nodes chooses the next node of a tour.

It follows Kool et al. 2019 (Attention, Learn to Solve Routing Problems!), with three changes that make a query cheaper
without making the network less expressive: projections of node states are computed once per instance and looked up per
query; the output projection of the glimpse is folded into the pointer's keys; and a learned weight on the distance to
the candidate (as in ICAM, Zhou et al. 2024) spares the network reconstructing distances from coordinates.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from models.routing.dgt import DynamicState
from models.routing.environment import Instances, State, clocks, feasible

CLIP = 10.0  # bound of the pointer's logits (Bello et al. 2017)
FORBIDDEN = torch.finfo(torch.float32).min / 2  # logit of probability 0; halved, so that sums with it stay finite


class Cache(NamedTuple):
    """Values shared by all queries on an instance. Channels come before nodes, so that the long axis is innermost."""

    query: Tensor  # (B, D, N) contribution to the query of standing on a node
    key: Tensor  # (B, H, N, D/H)
    value: Tensor  # (B, H, D/H, N)
    pointer_key: Tensor  # (B, N, D)
    distance: Tensor  # (B, N, N) float32, from row to column


class PointerDecoder(nn.Module):
    """Scores of every node as the next one, for any number of independent queries per instance."""

    def __init__(self, width: int, heads: int, dynamic: bool, rules: bool = False):
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.graph = nn.Linear(width, width, bias=False)
        self.node = nn.Linear(width, 4 * width, bias=False)
        self.load = nn.Parameter(torch.randn(width, 1) / math.sqrt(width))
        self.distance = nn.Parameter(torch.zeros(()))
        self.dynamic = DynamicState(width) if dynamic else None
        self.clock = nn.Parameter(torch.randn(width, 3) / math.sqrt(width)) if rules else None
        self.waits = nn.Parameter(torch.zeros(2)) if rules else None

    def prepare(self, nodes: Tensor, distance: Tensor) -> Cache:
        """Project node states (B, N, D) once for all queries."""
        nodes = self.norm(nodes)
        batch, num_nodes, width = nodes.shape
        query, key, value, pointer_key = self.node(nodes).chunk(4, -1)
        query = query + self.graph(nodes.mean(1, keepdim=True))

        def split(tensor: Tensor) -> Tensor:
            return tensor.view(batch, num_nodes, self.heads, -1).transpose(1, 2)

        return Cache(
            query.transpose(1, 2).contiguous(),
            split(key).contiguous() / math.sqrt(width // self.heads),
            split(value).transpose(2, 3).contiguous(),
            pointer_key / math.sqrt(width),
            distance,
        )

    def forward(self, cache: Cache, instances: Instances, state: State) -> Tensor:
        """Return logits (B, N, Q), float32, of visiting each node next; a forbidden node gets probability 0 exactly."""
        batch, queries = state.node.shape
        after = clocks(instances, state)
        penalty = torch.where(feasible(instances, state, after), 0.0, FORBIDDEN)
        query, away = look_up(cache, state.node)
        query = query + self.load * (state.load / instances.capacity[:, None])[:, None]
        if self.clock is not None and state.clock is not None:
            query = query + self.clock @ torch.stack(state.clock[:3], 1)
        scores = cache.key @ query.view(batch, self.heads, -1, queries)  # (B, H, N, Q)
        if self.dynamic:
            channels = self.dynamic(instances, state, cache.distance, away)
            reading = self.dynamic.key.weight @ query  # (B, M, Q)
            scores = scores + (channels * reading[:, :, None]).sum(1)[:, None]
        blocked = penalty.clamp_min(torch.finfo(scores.dtype).min / 2).to(scores.dtype)
        attention = (scores + blocked[:, None]).softmax(2)
        glimpse = (cache.value @ attention.to(cache.value.dtype)).view(batch, -1, queries)
        if self.dynamic:
            seen = (channels * attention.mean(1)[:, None]).sum(2)  # (B, M, Q)
            glimpse = glimpse + self.dynamic.value.weight @ seen
        compatibility = (cache.pointer_key @ glimpse).float()
        if self.dynamic:
            reading = self.dynamic.pointer.weight @ glimpse + self.dynamic.direct.weight.T
            compatibility = compatibility + (channels * reading[:, :, None]).sum(1).float()
        compatibility = compatibility - self.distance * away
        if self.waits is not None and after and state.clock and instances.rules is not None:
            closes, service = instances.rules[:, :, None, 1:3].unbind(-1)
            waited, left = after.waited - state.clock.waited[:, None], closes - (after.free - service)
            compatibility = compatibility - self.waits[0] * waited - self.waits[1] * left.where(left.isfinite(), 0)
        return CLIP * torch.tanh(compatibility) + penalty


def look_up(cache: Cache, node: Tensor) -> tuple[Tensor, Tensor]:
    """Look `node` (B, Q) up in the cache: columns (B, D, Q) of `query`, and distances (B, N, Q) from it."""
    batch, queries = node.shape
    ways = cache.distance.mT
    width, num_nodes = cache.query.shape[1:]
    if queries < num_nodes or torch.compiler.is_exporting():  # an exported program takes any number of queries
        return (
            cache.query.gather(2, node[:, None].expand(-1, width, -1)),
            ways.gather(2, node[:, None].expand(-1, num_nodes, -1)),
        )
    # With many queries a product with a one-hot matrix is faster than indexing, above all in the backward pass.
    here = cache.query.new_zeros(batch, num_nodes, queries).scatter_(1, node[:, None], 1.0)
    with torch.autocast(node.device.type, enabled=False):
        away = ways @ here.float()
    return cache.query @ here, away


class Decoding(NamedTuple):
    """A decoder with the instances for which it builds and scores tours, and its cache of them."""

    decoder: PointerDecoder
    cache: Cache
    instances: Instances

    @property
    def learnt(self) -> list[Tensor]:
        """The tensors that get gradients, in the layout of native code (`Weights` in decoder.h)."""
        load, distance, clock, waits = (getattr(self.decoder, name) for name in ("load", "distance", "clock", "waits"))
        if clock is not None and self.instances.rules is not None:
            load, distance = torch.cat([load, clock], 1).T, torch.cat([distance[None], waits])
        return [*self.cache[:4], load, distance, *([dynamic.weights()] if (dynamic := self.decoder.dynamic) else [])]

    @property
    def fixed(self) -> list[Tensor]:
        """The tensors without gradients: distances, demands, capacities, and with rules these and the travel times."""
        locs, demand, capacity, rules, _ = self.instances
        timed = [] if rules is None else [rules, (locs[:, :, None] - locs[:, None]).norm(dim=-1)]
        return [self.cache.distance, demand, capacity, *timed]


Score = Callable[[Sequence[Tensor], Tensor | None], Tensor | tuple[Tensor, ...]]


def log_prob_by(score: Score, learnt: Sequence[Tensor], known: Tensor | None) -> Tensor:
    """Return log-probabilities (B, S) of tours, or `known`, differentiable once by code outside torch.

    `score(learnt, None)` returns them and, given the upstream gradient (B, S), the gradients of `learnt`.
    """
    found: Tensor = _LogProb.apply(*learnt, score, known)  # type: ignore[no-untyped-call]
    return found


class _LogProb(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Any:
        *learnt, ctx.score, known = arguments
        ctx.save_for_backward(*learnt)
        return known if isinstance(known, Tensor) else ctx.score(learnt, None)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        return *ctx.score(ctx.saved_tensors, upstream.contiguous()), None, None
