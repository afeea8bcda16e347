"""The rooms of the code and what each may rest on; tests/test_dependencies.py holds all files to it."""

MODELS = ("models", *(f"models.{name}" for name in ("images", "market", "plans", "routing", "stories")))
BELOW_WORKLOADS = tuple(f"pipelines.{name}" for name in ("distributed", "engine", "members", "report", "run"))

# What each room may rest on, beside itself; those outside common may rest on all of it. A room is a folder, with all
# below it that has no row, or a file that others rest on without the rest of its folder. docs/architecture.md has
# this table, and docs/pictures/house.svg draws it.
ROOMS = {
    "common": (),
    "common.browser": (),
    "common.config": ("common",),
    "common.disk": ("common",),
    "common.input_files": ("common", "common.config"),
    "models": (),
    "models.routing": ("models",),
    "models.stories": ("models",),
    "models.market": ("models",),
    "models.plans": ("models",),
    "models.images": ("models",),
    "exporters.export_folder": (),
    "exporters.portable": (),
    "exporters.cards": ("models",),
    "exporters.rp2040": ("models", "models.stories"),
    "exporters.freqtrade": ("models", "models.market"),
    "exporters.to_rp2040": (
        "models",
        "models.stories",
        "exporters.cards",
        "exporters.export_folder",
        "exporters.portable",
        "exporters.rp2040",
    ),
    "exporters.onnx": ("exporters.portable", *MODELS),
    "exporters.web": ("exporters.onnx", "exporters.rp2040", "exporters.to_rp2040", *MODELS),
    "exporters": (
        *(f"exporters.{name}" for name in ("cards", "freqtrade", "export_folder", "portable", "onnx")),
        *("exporters.rp2040", "exporters.to_rp2040", "exporters.web", *MODELS),
    ),
    "pipelines.distributed": (),
    "pipelines.run": (),
    "pipelines.tracking": ("pipelines.distributed", "pipelines.run"),
    "pipelines.engine": ("models.io", "pipelines.distributed", "pipelines.run", "pipelines.tracking"),
    "pipelines.members": ("pipelines.distributed", "pipelines.engine", "pipelines.run"),
    "pipelines.report": ("pipelines.engine", "pipelines.members", "pipelines.run"),
    "pipelines.checks": ("pipelines.engine", "pipelines.run"),
    "pipelines.workloads": ("pipelines.engine",),
    "pipelines.workloads.bep": ("models", "models.plans", *BELOW_WORKLOADS),
    "pipelines.workloads.crypto": ("models", "models.market", *BELOW_WORKLOADS),
    "pipelines.workloads.cvrp": ("models", "models.routing", *BELOW_WORKLOADS),
    "pipelines.workloads.lmol": ("models", "models.images", *BELOW_WORKLOADS),
    "pipelines.workloads.tinystories": ("models", "models.stories", *BELOW_WORKLOADS),
    "pipelines.inventory": ("pipelines.engine", "pipelines.report", "pipelines.run", "pipelines.workloads"),
    "pipelines.exits": ("pipelines.distributed",),
    "pipelines.answers": ("models", "pipelines.exits", "pipelines.run", "pipelines.workloads"),
    "pipelines.following": ("pipelines.answers", "pipelines.engine", "pipelines.run"),
    "pipelines.server": ("pipelines.answers", "pipelines.report"),
    "pipelines": (
        *("models.io", "models.shipped"),
        *(
            f"pipelines.{name}"
            for name in ("answers", "checks", "distributed", "engine", "exits", "following", "inventory", "members")
        ),
        *(f"pipelines.{name}" for name in ("report", "run", "server", "tracking", "workloads", "workloads.lmol")),
    ),
    "examples": ("pipelines.engine",),
}


def room_of(name: str) -> str:
    """Return the room of a module, or of a name in one: the longest room name that begins it."""
    while name not in ROOMS:
        name = name.rpartition(".")[0]
    return name


def as_table() -> str:
    """Return the table in Markdown, for docs/architecture.md."""
    lines = ["| room | rests on, beside `common` |", "|---|---|"]
    for room, below in ROOMS.items():
        shown = [each for each in below if not each.startswith("common") or room.startswith("common")]
        lines.append(f"| `{room}` | {', '.join(f'`{each}`' for each in shown) or 'nothing of ours'} |")
    return "\n".join(lines) + "\n"
