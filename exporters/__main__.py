"""Export a trained run as a deployment artifact.

    python -m exporters safetensors runs/cvrp/dgt-50
    python -m exporters safetensors runs/cvrp/dgt-50 --which last --out dgt-50-last
    python -m exporters safetensors runs/lmol/adapters --merged
    python -m exporters safetensors runs/waves/default --family waves=my/waves/model.py

The artifact goes to RUN/exports/FORMAT unless --out names another folder; its manifest.json is written last, so a
folder with a manifest is complete. A format is a module `to_FORMAT.py` beside this file with
`export(run, model_folder, out) -> str`, which returns a line that says what was written. Of a run with many models
each goes to a folder of its own, unless the format has `export_together(run, {member: model_folder}, out)`.
"""

import functools
import importlib
import inspect
import sys
from pathlib import Path

from common.arguments import Parser, nearest


def main() -> None:
    try:
        args = parser().parse_args()
        for word in args.family:
            add_family(word)
        print(export(args.format, args.run, args.which, args.out, args.merged))
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


def parser() -> Parser:
    """Return the parser of this command; it raises ValueError for words that fit nothing."""
    parser = Parser(prog="python -m exporters", description=__doc__)
    parser.add_argument("format", metavar="FORMAT", help=f"one of: {', '.join(formats())}")
    parser.add_argument("run", metavar="RUN", type=Path, help="a run's folder, as in runs/cvrp/default")
    parser.add_argument("--out", metavar="FOLDER", type=Path, help="where to write; RUN/exports/FORMAT if not given")
    parser.add_argument("--which", choices=("best", "last"), default="best", help="which model of the run; best")
    parser.add_argument(
        "--merged", action="store_true", help="also a base with its adapters merged in, where it has any"
    )
    parser.add_argument(
        "--family",
        metavar="NAME=FILE",
        action="append",
        default=[],
        help="the Python file that builds models of a family of your own; its code is run",
    )
    return parser


def formats() -> list[str]:
    """Names of the formats, by the modules beside this file."""
    return sorted(path.stem.removeprefix("to_") for path in Path(__file__).parent.glob("to_*.py"))


def add_family(word: str) -> None:
    """Make the family of models NAME known, where `word` is NAME=FILE."""
    from models import io

    name, _, file = word.partition("=")
    if not file.endswith(".py") or not Path(file).is_file():
        raise ValueError(f"--family {word} must be NAME=FILE with a Python file, as in waves=my/waves/model.py")
    if name in io.BUILT_IN:
        raise ValueError(f"--family {word}: {name} is one of the project's own families; leave it out")
    io.FAMILIES[name] = file


def export(name: str, run: Path, which: str, out: Path | None, merged: bool = False) -> str:
    """Check what was asked for and call the format's exporter."""
    if name not in formats():
        raise ValueError(f"unknown format {name!r}; known formats: {', '.join(formats())}")
    if not run.is_dir():
        near = nearest(run.name, [path.name for path in run.parent.glob("*") if path.is_dir()])
        hint = f"did you mean {run.parent / near[0]}?" if near else "give a run's folder, as in runs/cvrp/default"
        raise ValueError(f"no run at {run}; {hint}")
    module = importlib.import_module(f"exporters.to_{name}")
    exporter = module.export
    if merged:
        if "merged" not in inspect.signature(exporter).parameters:
            raise ValueError(f"the format {name} has nothing to merge; leave --merged out")
        exporter = functools.partial(exporter, merged=True)
    out = out or run / "exports" / name
    members = sorted(path for path in (run / "members").glob("*") if path.is_dir())
    if not members:
        return exporter(run, _model_folder(run, which), out)
    trained = [member for member in members if (member / "model" / which).is_dir()]
    if not trained:
        raise ValueError(f"no member of {run} has a model/{which}; train it first, or give another run")
    folders = {member: member / "model" / which for member in trained}
    if hasattr(module, "export_together"):
        lines = [module.export_together(run, folders, out)]
    else:
        lines = [exporter(member, folder, out / member.name) for member, folder in folders.items()]
    lines += [f"{member.name} is left out: it has no model/{which}" for member in members if member not in trained]
    return "\n".join(lines)


def _model_folder(run: Path, which: str) -> Path:
    model_folder = run / "model" / which
    if not model_folder.is_dir():
        there = [other for other in ("best", "last") if (run / "model" / other).is_dir()]
        raise ValueError(
            f"{run} has no model/{which}; "
            + (f"it has model/{there[0]}: add --which {there[0]}" if there else "train it first, or give another run")
        )
    return model_folder


if __name__ == "__main__":
    main()
