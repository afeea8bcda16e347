"""Kernels of the routing policy for GPUs: tours of all steps in one launch, their log-probabilities and gradients.

Triton, which comes with torch for GPUs, compiles them on first use. They are then compared with torch on this machine;
where they differ or fail, a line on standard error says so and torch computes.
"""

import functools
import sys
from collections.abc import Sequence

import torch
from torch import Tensor

from models.routing import stepwise
from models.routing.decoder import Decoding, PointerDecoder, log_prob_by
from models.routing.environment import Instances, route_ends

DEVICES = {"cuda"}
MOST_NODES = 256  # with more, what a program holds of a step spills out of its registers
TOURS = 16  # of an instance, that a program builds or scores: the least that a matrix product may have
COMPARED = 64  # instances
EXACT = "ieee"  # products in float32; "tf32" ones have 10 bits of their factors


def usable(decoder: PointerDecoder, instances: Instances, ends: bool = False) -> bool:
    """Return whether the kernels, with `ends` if asked for, stand in for torch; compares them on first use."""
    device, nodes = instances.locs.device, instances.demand.shape[1]
    if device.type not in DEVICES or decoder.dynamic or instances.rules is not None or nodes > MOST_NODES:
        return False
    return trusted(device, nodes, len(decoder.load), decoder.heads, _precision(device), ends)


@functools.cache
def trusted(device: torch.device, nodes: int, width: int, heads: int, precision: str, ends: bool) -> bool:
    """Compare the kernels with torch on random instances; tells on standard error what is wrong."""
    try:
        with torch.random.fork_rng([]), torch.enable_grad(), torch.autocast(device.type, enabled=False):
            torch.manual_seed(0)
            fault = differences(device, nodes, width, heads, precision, ends)
    except Exception as error:  # of the compiler, the driver or the GPU; torch needs none of what failed
        fault = f"{type(error).__name__}: {error}"
    if fault:
        print("the kernels for routes are not used, torch computes:", " ".join(fault.split())[:300], file=sys.stderr)
    return not fault


def differences(device: torch.device, nodes: int, width: int, heads: int, precision: str, ends: bool) -> str:
    """Return how kernels and torch differ, more than rounding explains; nothing if they agree."""
    tours = min(8, nodes - 1)
    decoder = PointerDecoder(width, heads, dynamic=False).requires_grad_()
    decoder.distance.data += 0.5
    demand = torch.randint(1, 10, (COMPARED, nodes)).float()
    demand[:, 0] = 0
    given = (torch.rand(COMPARED, nodes, 2), demand, torch.full((COMPARED,), 30.0))
    uniform = torch.rand(COMPARED, tours, 2 * (nodes - 1)).to(device)
    weights, states = torch.randn(COMPARED, tours).to(device), torch.randn(COMPARED, nodes, width).to(device)
    decoder, instances = decoder.to(device), Instances(*(tensor.to(device) for tensor in given))
    ways = torch.rand(COMPARED, nodes, nodes).to(device)  # other ones there than back
    decoding = Decoding(decoder, decoder.prepare(states, ways), instances)
    first = torch.arange(1, tours + 1, device=device)
    tolerance = 1e-3 if precision == EXACT else 3e-2
    drawn = stepwise.build(decoding, tours, uniform, first)
    apart: dict[str, Tensor] = {}
    for name, noise in (("drawn", uniform), ("greedy", None)) if not ends else ():
        expected = drawn if noise is not None else stepwise.build(decoding, tours, None, first)
        found = build(decoding, tours, noise, first, precision)[0][..., : expected.shape[2]]
        apart[f"{name} tours"] = (found != expected).any(2).float().mean() / 10  # where rounding decides, all differs
    end = route_ends(drawn, nodes) if ends else None
    learnt, results = dict(decoder.named_parameters()), []
    for scored in (
        log_prob(decoding, drawn, end, not ends, precision=precision),
        stepwise.log_prob(decoding, drawn, end, not ends),
    ):
        slopes = torch.autograd.grad((weights * scored).sum(), list(learnt.values()), retain_graph=True)
        results.append((scored, *slopes))
    names = ["log-probabilities", *(f"gradients of {name}" for name in learnt)]
    apart |= {name: (one - other).norm() / other.norm() for name, one, other in zip(names, *results, strict=True)}
    for name, share in zip(apart, torch.stack(list(apart.values())).tolist(), strict=True):
        if not share <= tolerance:
            return f"{name} differ from those of torch by {share:.1e} where {tolerance:.0e} is due to rounding"
    return ""


def _precision(device: torch.device) -> str:
    """Return the precision of products: tf32 where torch may use it or, under autocast, what is less exact still."""
    less = torch.is_autocast_enabled(device.type) or torch.backends.cuda.matmul.fp32_precision == "tf32"
    return "tf32" if less else EXACT


def build(
    decoding: Decoding,
    num_tours: int,
    uniform: Tensor | None = None,
    first: Tensor | None = None,
    precision: str | None = None,
) -> tuple[Tensor, Tensor]:
    """Return what `RoutingPolicy.build` does, up to rounding, and the log-probabilities (B, S) of sampled tours.

    Actions have 2 (N - 1) steps whatever their lengths: the host need not wait to know them.
    """
    batch, nodes = decoding.instances.demand.shape
    device = decoding.instances.locs.device
    actions = torch.zeros(batch, num_tours, 2 * (nodes - 1), dtype=torch.long, device=device)
    log_prob = torch.empty(batch, num_tours, device=device)
    first = torch.zeros(num_tours, dtype=torch.long, device=device) if first is None else first.contiguous()
    uniform = None if uniform is None else uniform[..., : actions.shape[2]].float().contiguous()
    tensors = [tensor.detach().float().contiguous() for tensor in (*decoding.learnt, *decoding.fixed)]
    given = (tensors, first, uniform, decoding.decoder.heads, precision or _precision(device))
    torch.ops.routing.build_tours(*given, actions, log_prob)
    return actions, log_prob


def log_prob(
    decoding: Decoding,
    actions: Tensor,
    ends: Tensor | None = None,
    forced: bool = False,
    known: Tensor | None = None,
    precision: str | None = None,
) -> Tensor:
    """Return what `RoutingPolicy.log_prob` does, or `known`, differentiable once; minus infinity if infeasible."""
    precision, heads = precision or _precision(decoding.instances.locs.device), decoding.decoder.heads
    learnt = [tensor.float() for tensor in decoding.learnt]
    others = [tensor.detach().float().contiguous() for tensor in decoding.fixed]
    actions, ends = actions.contiguous(), None if ends is None else ends.contiguous()

    def score(learnt: Sequence[Tensor], upstream: Tensor | None) -> Tensor | tuple[Tensor, ...]:
        given = ([*(t.contiguous() for t in learnt), *others], actions, ends, int(forced), heads, precision)
        if upstream is None:
            log_prob = torch.empty(actions.shape[:2], device=actions.device)
            torch.ops.routing.score_tours(*given, None, [log_prob])
            return log_prob
        (batch, width, nodes), blocks = learnt[0].shape, -(-actions.shape[1] // TOURS)
        sizes = ((batch, blocks, 4, nodes, width), (batch * blocks, width), (batch * blocks,))
        found = [torch.zeros(size, device=actions.device) for size in sizes]
        torch.ops.routing.score_tours(*given, upstream, found)
        query, key, value, pointer = found[0].sum(1).unbind(1)
        key, value = (tensor.unflatten(2, (heads, -1)).transpose(1, 2) for tensor in (key, value))
        slopes = (query.transpose(1, 2), key, value.transpose(2, 3), pointer)
        return *slopes, found[1].sum(0)[:, None], found[2].sum()

    return log_prob_by(score, learnt, known)


def build_tours(
    tensors: list[Tensor],
    first: Tensor,
    uniform: Tensor | None,
    heads: int,
    precision: str,
    actions: Tensor,
    log_prob: Tensor,
) -> None:
    """Launch the kernel of this name; `tensors` are its first arguments."""
    own = (first, uniform, actions, log_prob)
    launch("build_tours", tensors, actions, heads, precision, own, (), {"DRAWN": uniform is not None})


def score_tours(
    tensors: list[Tensor],
    actions: Tensor,
    ends: Tensor | None,
    begin: int,
    heads: int,
    precision: str,
    upstream: Tensor | None,
    found: list[Tensor],
) -> None:
    """Launch the kernel of this name; `found` are its outputs, one without `upstream` and three with it."""
    outputs = (found[0], None, None, None) if upstream is None else (None, *found)
    own = (actions, None if ends is None else ends.view(torch.int8), upstream, *outputs)
    flags = {"HAS_ENDS": ends is not None, "GRADIENTS": upstream is not None}
    launch("score_tours", tensors, actions, heads, precision, own, (begin,), flags)


# Operations of torch's, one for each kernel: what looks on, such as a count of operations, sees a launch as one.
LIBRARY = torch.library.Library("routing", "FRAGMENT")
for function, written in ((build_tours, ("actions", "log_prob")), (score_tours, ("found",))):
    LIBRARY.define(function.__name__ + torch.library.infer_schema(function, mutates_args=written))
    LIBRARY.impl(function.__name__, function, "CUDA")


def launch(
    name: str,
    tensors: list[Tensor],
    actions: Tensor,
    heads: int,
    precision: str,
    own: tuple[Tensor | None, ...],
    last: tuple[int, ...],
    flags: dict[str, bool],
) -> None:
    """Launch a kernel of `tours`, each program for TOURS of an instance's `actions` (B, S, T)."""
    from models.routing.kernels import tours  # and with it Triton

    (batch, width, nodes), (count, steps) = tensors[0].shape, actions.shape[1:]
    shape = {**padded(nodes, width // heads), "PRECISION": precision, **flags}
    grid = (batch, -(-count // TOURS))
    getattr(tours, name)[grid](*tensors, *own, count, nodes, width // heads, heads, steps, *last, **shape)


def padded(nodes: int, depth: int) -> dict[str, int]:
    """Return the sizes that a kernel is compiled for, and options of the compiler."""
    nodes = max(16, 1 << (nodes - 1).bit_length())
    channels = max(16, 1 << (depth - 1).bit_length())
    # Few warps a program, so that more programs run at a time, although they spill some registers: on an H100 tours of
    # 100 customers and their gradients took 0.6 of the time that twice as many warps took.
    warps = min(nodes // 8, 4 * max(1, nodes // 128))
    sizes = {"TOURS": TOURS, "NODES": nodes, "CHANNELS": channels}
    return {**sizes, "num_warps": warps, "num_stages": 1, "enable_fp_fusion": True}
