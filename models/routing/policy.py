"""A routing policy: an encoder chosen by `kind`, the pointer decoder, and the tours they build together."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from common.config import checked
from models import io
from models.routing import kernels, native, stepwise
from models.routing.config import KINDS, RoutingConfig
from models.routing.decoder import Cache, Decoding, PointerDecoder
from models.routing.decodes import LIKELIEST, Guide
from models.routing.encoder import DistanceBiasedAttention, EncoderLayer, NodeEmbedding
from models.routing.environment import Instances, Routes, distances_of, route_ends, tour_length
from models.routing.gat import DenseGAT, nearest_neighbours, sparse_gat
from models.routing.inputs import RoutingInput, RoutingSettings, problem_of
from models.routing.problems import unreadable
from models.routing.solve import Asked, answer_all, check_work, found_by, given_problem, solve_all

SPACED = 20  # customers at which distances keep their unit


class Rollout(NamedTuple):
    """Tours and their costs."""

    actions: Tensor  # (B, S, T) int64 nodes in order of visit, padded with the depot
    cost: Tensor  # (B, S) float32 length
    log_prob: Tensor | None  # (B, S) float32, None where no gradient is recorded


class RoutingPolicy(io.Model):
    """A neural solver of capacitated vehicle routing problems of any size, building tours node by node.

    routes, cost = load("FOLDER").solve(locs, demand, capacity)  # from models.io import load
    """

    family = "routing"
    config: RoutingConfig
    pipeline_tag = "reinforcement-learning"
    input_type, settings_type = RoutingInput, RoutingSettings
    _no_split_modules = ("EncoderLayer",)

    def __init__(self, config: RoutingConfig):
        super().__init__()
        if config.kind not in KINDS:
            raise ValueError(f"kind is {config.kind!r}; known kinds: {', '.join(KINDS)}")
        for name, least in (("width", 1), ("heads", 1), ("layers", 1), ("neighbors", 0)):
            if getattr(config, name) < least:
                raise ValueError(f"{name} is {getattr(config, name)}; it must be {least} or more")
        if config.width % config.heads:
            raise ValueError(f"width {config.width} is not a multiple of heads {config.heads}")
        if config.neighbors and config.kind != "gat":
            raise ValueError(f"neighbors is {config.neighbors}, but only kind 'gat' has a sparse encoder")
        if config.one_way and (config.rules or config.kind == "gat"):
            what = "rules" if config.rules else "kind 'gat', whose edges have one length"
            raise ValueError(f"one_way is true, which needs kind 'gt' or 'dgt' without rules; given {what}")
        self.config = config
        self.gradient_checkpointing = False
        attention: Callable[[int, int], nn.Module] = partial(DistanceBiasedAttention, one_way=config.one_way)
        if config.kind == "gat":
            attention = sparse_gat if config.neighbors else DenseGAT
        self.embedding = NodeEmbedding(config.width, config.rules, config.one_way)
        self.layers = nn.ModuleList(
            EncoderLayer(config.width, attention(config.width, config.heads)) for _ in range(config.layers)
        )
        self.decoder = PointerDecoder(config.width, config.heads, config.kind == "dgt", config.rules)

    def renewed(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return weights stored in half precision as float32, to compute with."""
        half = all(tensor.dtype == torch.float16 for tensor in tensors.values())
        return {name: tensor.float() for name, tensor in tensors.items()} if half else tensors

    def encode(self, instances: Instances) -> Cache:
        """Compute the decoder's cache of these instances."""
        distance = distances_of(instances)
        if self.config.spacing:  # then neighbours are equally far in instances of all sizes
            ratio = (distance.shape[1] - 1) / SPACED
            exact = isinstance(ratio, float)  # else a symbol of an export, whose root no format has
            distance = distance * (math.sqrt(ratio) if exact else (torch.ones((), dtype=torch.float64) * ratio).sqrt())
        graph = nearest_neighbours(distance, self.config.neighbors) if self.config.neighbors else distance
        nodes = self.embedding(instances, distance)
        again = self.gradient_checkpointing and torch.is_grad_enabled()
        for layer in self.layers:
            nodes = checkpoint(layer, nodes, graph, use_reentrant=False) if again else layer(nodes, graph)
        return self.decoder.prepare(nodes, distance)

    def forward(
        self, instances: Instances, num_starts: int = 1, uniform: Tensor | None = None, tours: Tensor | None = None
    ) -> Rollout:
        """Build `num_starts` tours per instance, or score the given `tours` (B, S, T).

        With several starts, tour j visits customer j + 1 first (POMO, Kwon et al. 2020); the policy does not choose
        that step, so it has no log-probability. `uniform` (B, S, 2 * (N - 1)), numbers in [0, 1), decides which nodes
        are sampled; without it the likeliest node is visited. Tours are built without gradients from one encoding; if
        gradients are enabled, one further pass over all steps computes the log-probabilities of the tours or, in native
        code and kernels, which know them, their gradients.

        Given `tours` are examples to imitate, and their routes may be driven in any order and, without rules or a
        matrix, either way round: the log-probability of leaving the depot is that of visiting any end of any route
        still to come.
        """
        num_customers = instances.demand.shape[1] - 1
        if not 1 <= num_starts <= num_customers:
            most = f"{num_customers}, the number of customers"
            raise ValueError(f"num_starts is {num_starts}; it must be from 1 to {most}")
        cache = self.encode(instances)
        if tours is not None:
            ends = route_ends(tours, num_customers + 1, both=not instances.directed)
            return Rollout(tours, tour_length(instances, tours), self.log_prob(cache, instances, tours, ends))
        first = torch.arange(1, num_starts + 1, device=instances.locs.device) if num_starts > 1 else None
        known = native.scores(instances) or kernels.usable(self.decoder, instances)
        if torch.is_grad_enabled() and uniform is not None and known:
            decoding, code = Decoding(self.decoder, cache, instances), native if native.scores(instances) else kernels
            actions, found = code.build(decoding, num_starts, uniform, first)
            log_prob = code.log_prob(decoding, actions, forced=first is not None, known=found)
            return Rollout(actions, tour_length(instances, actions), log_prob)
        detached = Cache(*(tensor.detach() for tensor in cache))
        actions = self.build(detached, instances, num_starts, Guide(uniform, first))
        scored = self.log_prob(cache, instances, actions, forced=first is not None) if torch.is_grad_enabled() else None
        return Rollout(actions, tour_length(instances, actions), scored)

    def log_prob(
        self, cache: Cache, instances: Instances, actions: Tensor, ends: Tensor | None = None, forced: bool = False
    ) -> Tensor:
        """Return log-probabilities (B, S) of whole tours (B, S, T), less a forced first step.

        With `ends` (B, N, S), a step out of the depot counts as a visit to any of the ends not served yet.
        """
        given = (Decoding(self.decoder, cache, instances), actions, ends, forced)
        if native.scores(instances):
            return native.log_prob(*given)
        if kernels.usable(self.decoder, instances, ends is not None):
            return kernels.log_prob(*given)
        return stepwise.log_prob(*given)

    @torch.no_grad()
    def build(self, cache: Cache, instances: Instances, num_tours: int, guide: Guide = LIKELIEST) -> Tensor:
        """Return actions (B, S, T) of `num_tours` tours per instance, built as `guide` says."""
        given = (Decoding(self.decoder, cache, instances), num_tours, *guide)
        if native.decodes(instances):
            return native.build(*given)[0]
        if kernels.usable(self.decoder, instances):
            return kernels.build(*given)[0]
        return stepwise.build(*given)

    def solve(self, locs: object, demand: object, capacity: int, **settings: object) -> tuple[Routes, float]:
        """Return routes for one problem, as indices into `locs`, and their length in the unit of `locs`, in float64.

        locs (N, 2) are coordinates in any unit, the depot first; demand (N,) are whole numbers, 0 at the depot;
        capacity is a whole number. Lists, arrays and tensors are accepted. The settings are those of RoutingSettings;
        without `milliseconds` the policy's own tours in all symmetries count, the same at every call. Raises ValueError
        if this is not an instance or a setting does not fit.
        """
        problem = given_problem(locs, demand, capacity)
        if not problem.customers:
            return [], 0.0
        chosen = checked(RoutingSettings, {"milliseconds": 0, "augment": True, **settings}, "settings")
        check_work(problem.customers, chosen, math.inf)
        return solve_all(self, [Asked(problem)], chosen)[0]

    def prepared(self, given: RoutingInput, settings: RoutingSettings) -> tuple[RoutingInput, Asked]:
        """Return the input and its problem."""
        problem = problem_of(given)
        initial = None if given.initial is None else [list(route) for route in given.initial]
        if initial is None and (problem.plain or not unreadable(problem, self.config)):
            check_work(problem.customers, settings)
        return given, Asked(problem, given.item, initial)

    def answers(
        self, prepared: Sequence[tuple[RoutingInput, Asked]], settings: RoutingSettings
    ) -> list[dict[str, object]]:
        """Return the routes of each problem, customers numbered from 1, and their cost; of degrees, in km.

        Problems beyond the plain CVRP are solved by native ruin and recreate, from tours of the policy if it can read
        them and the settings ask for it.
        """
        solved = iter(solve_all(self, [asked for _, asked in prepared if asked.problem.plain], settings))
        others = iter(answer_all(self, [asked for _, asked in prepared if not asked.problem.plain], settings))
        found: list[dict[str, object]] = []
        for given, asked in prepared:
            own = dict(zip(("routes", "cost"), next(solved), strict=True)) if asked.problem.plain else next(others)
            name = {} if given.name is None else {"name": given.name}
            by = {} if "error" in own else {"by": found_by(self, asked, settings)}
            found.append({**name, **own, **({"unit": "km"} if given.degrees and given.distances is None else {}), **by})
        return found

    def compile(self, *args: object, **kwargs: object) -> None:
        """Compile the decoder, called at every step; the loop around it depends on the data."""
        self.decoder.compile(*args, **{"dynamic": True, **kwargs})

    def example(self) -> dict[str, Any]:
        """Return arguments of a deterministic forward pass: two instances of ten customers."""
        generator = torch.Generator().manual_seed(0)
        locs = torch.rand(2, 11, 2, generator=generator)
        demand = torch.randint(1, 10, (2, 11), generator=generator).float()
        demand[:, 0] = 0
        device = next(self.parameters()).device
        instances = Instances(*(tensor.to(device) for tensor in (locs, demand, torch.full((2,), 20.0))))
        return {"instances": instances, "num_starts": 10}
