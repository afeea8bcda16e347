"""Triton kernels of the pointer decoder in float32: tours, their log-probabilities and their gradients.

A program goes through all steps of `TOURS` tours of one instance, so that a launch takes the place of 42 at each step.
Letters are those of models/routing/environment.py; M tours of a program, P nodes and C channels of a head, both padded
to powers of two. Arguments lie in memory as a `Cache` does. What a query computes is computed again for its gradient,
not kept.
"""

import triton
import triton.language as tl

CLIP = tl.constexpr(10.0)
NEVER = tl.constexpr(-1e30)


@triton.jit
def _attend(
    query, key, value, load_weight, node, share, allowed, head, nodes, depth,
    NODES: tl.constexpr, CHANNELS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Return a head's queries (M, C), its attention (M, P) and what it sees (M, C)."""
    n, c = tl.arange(0, NODES), tl.arange(0, CHANNELS)
    used, whole = c < depth, (n < nodes)[:, None] & (c < depth)[None, :]
    channel = head * depth + c
    asked = tl.load(query + channel[None, :] * nodes + node[:, None], mask=used[None, :], other=0.0)
    asked += tl.load(load_weight + channel, mask=used, other=0.0)[None, :] * share[:, None]
    keys = tl.load(key + head * nodes * depth + n[:, None] * depth + c[None, :], mask=whole, other=0.0)
    scores = tl.where(allowed, tl.dot(asked, tl.trans(keys), input_precision=PRECISION), NEVER)
    weights = tl.where(allowed, tl.exp(scores - tl.max(scores, 1)[:, None]), 0.0)
    attention = weights / tl.sum(weights, 1)[:, None]
    values = tl.load(value + channel[None, :] * nodes + n[:, None], mask=whole, other=0.0)
    return asked, attention, tl.dot(attention, values, input_precision=PRECISION)


@triton.jit
def _allow(waiting, demand, node, load, n):
    """Return which nodes (M, P) may be next: the depot from any customer, and where there is nothing else."""
    fits = waiting & (demand[None, :] <= load[:, None])
    home = (node != 0) | (tl.max(fits.to(tl.int32), 1) == 0)
    return fits | ((n == 0)[None, :] & home[:, None])


@triton.jit
def _look(
    query, key, value, pointer, load_weight, distance_weight, distance, demand, waiting, node, load, full, nodes, depth,
    heads, NODES: tl.constexpr, CHANNELS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Return the pointer's logits (M, P) before they are clipped, where they are allowed, ways (M, P), shares (M)."""
    n, c = tl.arange(0, NODES), tl.arange(0, CHANNELS)
    allowed = _allow(waiting > 0, demand, node, load, n)
    away = tl.load(distance + node[:, None] * nodes + n[None, :], mask=(n < nodes)[None, :], other=0.0)
    share = load.to(tl.float32) / full.to(tl.float32)
    whole = (n < nodes)[:, None] & (c < depth)[None, :]
    logits = -distance_weight * away
    for head in range(heads):
        _, _, glimpse = _attend(
            query, key, value, load_weight, node, share, allowed, head, nodes, depth, NODES, CHANNELS, PRECISION
        )
        place = n[:, None] * heads * depth + head * depth + c[None, :]
        pointers = tl.load(pointer + place, mask=whole, other=0.0)
        logits += tl.dot(glimpse, tl.trans(pointers), input_precision=PRECISION)
    return logits, allowed, away, share


@triton.jit
def _weigh(logits, allowed):
    """Clip the logits; return chances (M, P), which are 0 where it is not allowed, and the slope of tanh.

    The slope, 1 - tanh**2, is computed so that it is exact for large logits too.
    """
    power = tl.exp(-2 * tl.abs(logits))
    tanh = (1 - power) / (1 + power)
    tanh = tl.where(logits < 0, -tanh, tanh)
    most = tl.max(tl.where(allowed, tanh, -1.0), 1)
    chances = tl.where(allowed, tl.exp((tanh - most[:, None]) * CLIP), 0.0)
    return chances, 4 * power / ((1 + power) * (1 + power))


@triton.jit(do_not_specialize=["tours", "nodes", "steps"])
def build_tours(
    query, key, value, pointer, load_weight, distance_weight, distance, demand, capacity,
    first, uniform, actions, log_prob, tours, nodes, depth, heads, steps,
    DRAWN: tl.constexpr, TOURS: tl.constexpr, NODES: tl.constexpr, CHANNELS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write actions (B, S, T), which the caller has filled with the depot, and the log-probabilities (B, S).

    Tours are greedy, or DRAWN by `uniform` (B, S, T); their first customers are `first` (S) unless that is 0. Logits
    that are no numbers leave customers out.
    """
    b, s = tl.program_id(0).to(tl.int64), tl.program_id(1) * TOURS + tl.arange(0, TOURS)
    n, real, width = tl.arange(0, NODES), s < tours, depth * heads
    query, key, value = query + b * nodes * width, key + b * nodes * width, value + b * nodes * width
    pointer, distance = pointer + b * nodes * width, distance + b * nodes * nodes
    row, weight = (b * tours + s) * steps, tl.load(distance_weight)
    wanted = tl.load(demand + b * nodes + n, mask=n < nodes, other=0.0).to(tl.int32)
    full = tl.load(capacity + b).to(tl.int32)
    waiting = (((n > 0) & (n < nodes))[None, :] & real[:, None]).to(tl.int32)
    node, load, sum = tl.zeros([TOURS], tl.int32), tl.zeros([TOURS], tl.int32) + full, tl.zeros([TOURS], tl.float32)
    start = tl.load(first + s, mask=real, other=0).to(tl.int32)
    t, busy = 0, 1
    while busy > 0:
        logits, allowed, _, _ = _look(
            query, key, value, pointer, load_weight, weight, distance, wanted, waiting, node, load, full, nodes,
            depth, heads, NODES, CHANNELS, PRECISION,
        )  # fmt: skip
        if DRAWN:
            chances, _ = _weigh(logits, allowed)
            all = tl.sum(chances, 1)
            threshold = tl.load(uniform + row + t, mask=real, other=0.0) * all
            passed = allowed & (tl.cumsum(chances, 1) > threshold[:, None])
            next = tl.min(tl.where(passed, n[None, :], NODES), 1)
            last = tl.max(tl.where(allowed, n[None, :], 0), 1)  # rounding may leave none past the threshold
            next = tl.where((next == NODES) & (all == all), last, next)
            chosen = tl.log(tl.sum(tl.where(n[None, :] == next[:, None], chances, 0.0), 1) / all)
        else:
            best = tl.max(tl.where(allowed, logits, -float("inf")), 1)
            next = tl.min(tl.where(allowed & (logits == best[:, None]), n[None, :], NODES), 1)
            chosen = sum * 0
        forced = (t == 0) & (start > 0)
        chosen, next = tl.where(forced, 0.0, chosen), tl.where(forced, start, next)
        chosen, next = tl.where(next < NODES, chosen, float("nan")), tl.where(next < NODES, next, 0)
        tl.store(actions + row + t, next.to(tl.int64), mask=real)
        sum += chosen
        taken = n[None, :] == next[:, None]
        load = tl.where(next == 0, full, load - tl.sum(tl.where(taken, wanted[None, :], 0), 1))
        waiting, node = tl.where(taken, 0, waiting), next
        t += 1
        busy = tl.max(tl.max(waiting, 1) + tl.where(real, node, 0), 0) * (t < steps)
    tl.store(log_prob + b * tours + s, sum, mask=real)


@triton.jit
def _add(place, mask, what):
    tl.store(place, tl.load(place, mask=mask, other=0.0) + what, mask=mask)


@triton.jit
def _add_gradients(
    query, key, value, pointer, load_weight, node, share, allowed, d_logits, d_states, d_load, nodes, depth, heads,
    NODES: tl.constexpr, CHANNELS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Add those of a step, from `d_logits` (M, P), to d_states (4, N, D) and d_load (D)."""
    n, c = tl.arange(0, NODES), tl.arange(0, CHANNELS)
    width, whole = depth * heads, (n < nodes)[:, None] & (c < depth)[None, :]
    here = (n[None, :] == node[:, None]).to(tl.float32)
    for head in range(heads):
        channel = head * depth + c
        own = n[:, None] * width + channel[None, :]
        at, size = d_states + own, nodes * width
        asked, attention, glimpse = _attend(
            query, key, value, load_weight, node, share, allowed, head, nodes, depth, NODES, CHANNELS, PRECISION
        )
        pointers = tl.load(pointer + own, mask=whole, other=0.0)
        d_glimpse = tl.dot(d_logits, pointers, input_precision=PRECISION)
        values = tl.load(value + channel[None, :] * nodes + n[:, None], mask=whole, other=0.0)
        d_attention = tl.dot(d_glimpse, tl.trans(values), input_precision=PRECISION)
        d_scores = attention * (d_attention - tl.sum(attention * d_attention, 1)[:, None])
        keys = tl.load(key + head * nodes * depth + n[:, None] * depth + c[None, :], mask=whole, other=0.0)
        d_asked = tl.dot(d_scores, keys, input_precision=PRECISION)
        _add(at, whole, tl.dot(tl.trans(here), d_asked, input_precision=PRECISION))
        _add(at + size, whole, tl.dot(tl.trans(d_scores), asked, input_precision=PRECISION))
        _add(at + 2 * size, whole, tl.dot(tl.trans(attention), d_glimpse, input_precision=PRECISION))
        _add(at + 3 * size, whole, tl.dot(tl.trans(d_logits), glimpse, input_precision=PRECISION))
        _add(d_load + channel, c < depth, tl.sum(d_asked * share[:, None], 0))


@triton.jit(do_not_specialize=["tours", "nodes", "steps", "begin"])
def score_tours(
    query, key, value, pointer, load_weight, distance_weight, distance, demand, capacity,
    actions, ends, upstream, log_prob, d_states, d_load, d_distance, tours, nodes, depth, heads, steps, begin,
    HAS_ENDS: tl.constexpr, GRADIENTS: tl.constexpr, TOURS: tl.constexpr, NODES: tl.constexpr,
    CHANNELS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write log_prob (B, S) of actions (B, S, T) from step `begin` on, or gradients of `upstream` (B, S) times it.

    ends (B, N, S): a step out of the depot to an end is that to any end. Each program adds its gradients to rows of
    its own, which the caller has filled with 0: d_states (programs, 4, N, D), those of query, key, value and pointer,
    d_load (programs, D) and d_distance (programs).
    """
    b, s = tl.program_id(0).to(tl.int64), tl.program_id(1) * TOURS + tl.arange(0, TOURS)
    n, real, width = tl.arange(0, NODES), s < tours, depth * heads
    program = b * tl.num_programs(1) + tl.program_id(1)
    query, key, value = query + b * nodes * width, key + b * nodes * width, value + b * nodes * width
    pointer, distance = pointer + b * nodes * width, distance + b * nodes * nodes
    row, weight = (b * tours + s) * steps, tl.load(distance_weight)
    wanted = tl.load(demand + b * nodes + n, mask=n < nodes, other=0.0).to(tl.int32)
    full = tl.load(capacity + b).to(tl.int32)
    waiting = (((n > 0) & (n < nodes))[None, :] & real[:, None]).to(tl.int32)
    node, load, sum = tl.zeros([TOURS], tl.int32), tl.zeros([TOURS], tl.int32) + full, tl.zeros([TOURS], tl.float32)
    farther = tl.zeros([TOURS], tl.float32)
    if GRADIENTS:
        up = tl.load(upstream + b * tours + s, mask=real, other=0.0)
    if HAS_ENDS:
        place = ends + b * nodes * tours + n[None, :] * tours + s[:, None]
        end = tl.load(place, mask=(n < nodes)[None, :] & real[:, None], other=0) != 0
    t, busy = 0, 1
    while busy > 0:
        next = tl.load(actions + row + t, mask=real, other=0).to(tl.int32)
        taken = n[None, :] == next[:, None]
        if t >= begin:
            logits, allowed, away, share = _look(
                query, key, value, pointer, load_weight, weight, distance, wanted, waiting, node, load, full, nodes,
                depth, heads, NODES, CHANNELS, PRECISION,
            )  # fmt: skip
            chances, slopes = _weigh(logits, allowed)
            meant = taken & allowed
            valid = tl.max(meant.to(tl.int32), 1) > 0
            if HAS_ENDS:  # any end of a route may begin the next one
                meant = tl.where(((node == 0) & (next != 0) & valid)[:, None], end & allowed, meant)
            all, some = tl.sum(chances, 1), tl.sum(tl.where(meant, chances, 0.0), 1)
            if GRADIENTS:
                d_logits = chances * (tl.where(meant, 1 / some[:, None], 0.0) - 1 / all[:, None])
                d_logits = tl.where(valid[:, None], d_logits * slopes * (up * CLIP)[:, None], 0.0)
                farther -= tl.sum(d_logits * away, 1)
                _add_gradients(
                    query, key, value, pointer, load_weight, node, share, allowed, d_logits,
                    d_states + program * 4 * nodes * width, d_load + program * width, nodes, depth, heads,
                    NODES, CHANNELS, PRECISION,
                )  # fmt: skip
                tl.debug_barrier()  # the next step's threads add to what others have written
            else:
                sum += tl.where(valid, tl.log(some / all), -float("inf"))
        load = tl.where(next == 0, full, load - tl.sum(tl.where(taken, wanted[None, :], 0), 1))
        waiting, node = tl.where(taken, 0, waiting), next
        t += 1
        busy = tl.max(tl.max(waiting, 1) + tl.where(real, node, 0), 0) * (t < steps)
    if GRADIENTS:
        tl.store(d_distance + program, tl.sum(farther, 0))
    else:
        tl.store(log_prob + b * tours + s, sum, mask=real)
