"""How slow the processor is at the moment, so that a bound of CPU time means the same work on any."""

import time

SECONDS = 0.08  # of CPU for a million squares, on the processor and in the quiet that the bounds are given for


def within(taken: float, seconds: float) -> bool:
    """Whether CPU time is less than `seconds` of that processor; how slow this one is, is measured only if need be."""
    return taken < seconds or taken < seconds * slowness()


def slowness() -> float:
    """Return how many times longer than in SECONDS this thread adds a million squares now, at least 1.

    Other programs take a share of a core's caches and, where two threads share a core, of its units: the CPU time of
    the same command varies by 1.7 on one machine.
    """
    began = time.thread_time()
    sum(number * number for number in range(1_000_000))
    return max(1.0, (time.thread_time() - began) / SECONDS)
