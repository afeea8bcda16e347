"""Tours of a policy and their log-probabilities by torch: one query of the decoder after another, or all at once."""

import torch
from torch import Tensor

from models.routing.decoder import FORBIDDEN, Decoding
from models.routing.environment import DEPOT, replay, reset, step


def log_prob(decoding: Decoding, actions: Tensor, ends: Tensor | None, forced: bool) -> Tensor:
    """Compute `RoutingPolicy.log_prob`."""
    decoder, cache, instances = decoding
    states = replay(instances, actions, begin=int(forced))
    actions = actions[..., int(forced) :]
    log_probs: Tensor = decoder(cache, instances, states).log_softmax(1)
    chosen = log_probs.gather(1, actions.flatten(1)[:, None]).squeeze(1)
    if ends is not None:
        open_ends = states.waiting & ends[..., None].expand(-1, -1, -1, actions.shape[2]).flatten(2)
        begun = log_probs.masked_fill(~open_ends, FORBIDDEN).logsumexp(1)
        chosen = torch.where((states.node == DEPOT) & (actions.flatten(1) != DEPOT), begun, chosen)
    return chosen.view_as(actions).sum(-1)


@torch.no_grad()
def build(decoding: Decoding, num_tours: int, uniform: Tensor | None = None, first: Tensor | None = None) -> Tensor:
    """Compute `RoutingPolicy.build`."""
    decoder, cache, instances = decoding
    batch, num_nodes = instances.demand.shape
    num_customers = num_nodes - 1
    state = reset(instances, num_tours)
    # Checking whether all tours are finished waits for the GPU, so there it is done only now and then.
    every = 1 if state.node.device.type == "cpu" else max(8, num_customers // 8)
    actions: list[Tensor] = []
    for t in range(2 * num_customers):
        if t == 0 and first is not None:
            action = first.repeat(batch, 1)
        else:
            logits = decoder(cache, instances, state)
            action = logits.argmax(1) if uniform is None else _draw(logits, uniform[..., t])
        actions.append(action)
        state = step(instances, state, action)
        checked = t >= num_customers and (t - num_customers) % every == every // 2
        if checked and not state.waiting[:, DEPOT + 1 :].any():
            break
    return torch.stack(actions, -1)


def _draw(logits: Tensor, uniform: Tensor) -> Tensor:
    """Sample nodes (B, Q) from logits (B, N, Q) by inverting the distribution function at `uniform` (B, Q)."""
    probabilities = logits.softmax(1)
    if torch.are_deterministic_algorithms_enabled():  # a GPU adds floats up in varying order, whole numbers exactly
        probabilities = (probabilities * 2**32).long()
    cumulative = probabilities.cumsum(1)
    # The first node past the threshold is the one drawn. A parallel sum may round so that this is a forbidden node or
    # that no node is past it, so every allowed node takes part, and no other.
    rank = torch.arange(logits.shape[1], 0, -1, device=logits.device)[:, None]
    passed = (cumulative > uniform[:, None] * cumulative[:, -1:]) * rank + 1
    return passed.masked_fill_(logits <= FORBIDDEN / 2, 0).argmax(1)
