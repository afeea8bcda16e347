"""Tours through customers by encoder.onnx and step.onnx: pip install onnxruntime; python example.py [CUSTOMERS]."""

import sys
from pathlib import Path

import numpy as np
import onnxruntime

FOLDER = Path(__file__).parent
encoder, step = (onnxruntime.InferenceSession(FOLDER / f"{name}.onnx") for name in ("encoder", "step"))


def solve(locs, demand, capacity):
    """Return the shortest of N - 1 greedy tours, one to each customer first, as nodes in order, and its length.

    locs (N, 2) lie in the unit square, the depot first; demand (N,) are whole numbers, 0 at the depot.
    """
    locs, demand, capacity = (np.asarray(each, np.float32)[None] for each in (locs, demand, capacity))
    nodes = locs.shape[1]
    shared = encoder.run(None, {"locs": locs, "demand": demand, "capacity": capacity})
    known = dict(zip(("query", "key", "value", "pointer_key", "distance"), shared, strict=True))
    known |= {"demand": demand, "capacity": capacity}
    node, load = np.arange(1, nodes)[None], np.repeat(capacity[:, None], nodes - 1, 1)
    waiting, tours = np.ones((1, nodes, nodes - 1), bool), []
    while True:
        load = np.where(node == 0, capacity[:, None], load - demand[0][node])
        np.put_along_axis(waiting, node[:, None], False, 1)
        tours.append(node[0])
        if not waiting[:, 1:].any():
            break
        node = step.run(None, known | {"node": node, "load": load.astype(np.float32), "waiting": waiting})[0].argmax(1)
    tours = np.stack(tours, 1)
    paths = locs[0][np.pad(tours, ((0, 0), (1, 1)))]  # from the depot and back to it
    lengths = np.linalg.norm(np.diff(paths, axis=1), axis=2).sum(1)
    return tours[lengths.argmin()].tolist(), float(lengths.min())


if __name__ == "__main__":
    customers = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    places, wanted = np.random.rand(customers + 1, 2), np.random.randint(1, 10, customers + 1)
    wanted[0] = 0
    print(*solve(places, wanted, 30))
