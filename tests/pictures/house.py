"""The house that the code lives in: its rooms, each resting on those below, and the path of a batch through them."""

from tests.pictures.page import document, template

WIDTH, HEIGHT = 1000, 472
# (x, y, width, height, name, what it holds, a line each, its rooms): a room rests only on those beside or below it.
BOXES: tuple[tuple[int, int, int, int, str, list[str], tuple[str, ...]], ...] = (
    (
        *(20, 16, 740, 54, "pipelines/*.py"),
        ["the commands, which share exits.py, with answers/ · following/ · server/ · inventory/ · checks/"],
        (
            "examples",
            "pipelines",
            *(f"pipelines.{name}" for name in ("answers", "checks", "exits", "following", "inventory", "server")),
        ),
    ),
    (
        20,
        84,
        740,
        92,
        "pipelines/workloads/",
        ["cvrp, tinystories, crypto,", "bep, lmol, and yours"],
        ("pipelines.workloads",),
    ),
    (
        *(20, 190, 740, 92, "pipelines/engine/"),
        ["the loop; report/ members/", "tracking/ run/ distributed/"],
        tuple(f"pipelines.{name}" for name in ("engine", "report", "members", "tracking", "run", "distributed")),
    ),
    (20, 296, 740, 92, "models/", ["one module, one config,", "one device"], ("models",)),
    (20, 402, 960, 54, "common/", ["files, random numbers, statistics, errors; imports nothing of ours"], ("common",)),
    (780, 16, 200, 266, "runs/<workload>/<name>/", [], ()),
    (780, 296, 200, 92, "exporters/", ["read the saved model,", "know no pipeline"], ("exporters",)),
)
# (x, y, number, what happens, where)
STEPS = (
    (215, 209, 1, "step → items", "batches.py"),
    (215, 103, 2, "items → batch", "train.batch(items)"),
    (398, 103, 3, "batch → sums", "task.loss(model, batch)"),
    (398, 315, 4, "tensors → logits", "model(...)"),
    (398, 209, 5, "gradients ÷ count", "update.py, all ranks"),
    (581, 209, 6, "one update", "optim.py"),
    (581, 103, 7, "model → scores", "task.score(model, batch)"),
    (795, 60, 8, "metrics.jsonl", "monitor.py"),
    (795, 132, 9, "checkpoints/", "checkpoints.py"),
    (795, 204, 10, "model/best", "safetensors + JSON"),
)
STEP = (170, 54)  # width, height
ARROWS = (  # from one step to the next: points of a line
    "300,209 300,157",
    "385,130 398,130",
    "420,157 420,180 391.5,180 391.5,300 440,300 440,315",
    "520,315 520,263",
    "568,236 581,236",
    "660,209 660,157",
    "751,130 772,130 772,87 795,87",
    "880,114 880,132",
    "880,186 880,204",
    "880,258 880,296",
)


def house() -> str:
    """Draw the rooms and the path of a batch."""
    path = "; ".join(f"{number} {what}, {where}" for *_, number, what, where in STEPS)
    label = f"The rooms of the code, each resting on those below it, and the path of a batch: {path}"
    body = template("house.svg", rooms=[box[:6] for box in BOXES], steps=STEPS, step=STEP, arrows=ARROWS)
    return document(WIDTH, HEIGHT, label, body)
