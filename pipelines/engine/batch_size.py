"""How many examples go through the model at once.

The global batch is the user's and never changes; only its split into micro-batches does, and gradients are summed, so
the result is the same but for rounding.
"""

import torch


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception means that the device's or the host's memory ran out."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and "DefaultCPUAllocator: can't allocate memory" in str(error)


def smaller(micro_batch_size: int, local_batch_size: int) -> int | None:
    """The largest divisor of the process's batch that is at most half as large; None below 1."""
    half = micro_batch_size // 2
    return next((size for size in range(half, 0, -1) if local_batch_size % size == 0), None)
