"""Export a trained run as a deployment artifact.

    python -m exporters safetensors runs/cvrp/dgt-50
    python -m exporters safetensors runs/cvrp/dgt-50 --which last --out dgt-50-last
    python -m exporters safetensors runs/lmol/adapters --merged
    python -m exporters safetensors runs/cvrp/dgt-50 --push my-name/dgt-50
    python -m exporters onnx runs/bep/default
    python -m exporters freqtrade runs/crypto/default
    python -m exporters safetensors my_model/ --workload my/waves
    python -m exporters web models/pretrained/cvrp-20
    python -m exporters site public
    python -m exporters rp2040 models/pretrained/tinystories-real --board pico2 --format c

RUN may also be the folder of a model, such as one that comes with the project. The artifact goes to RUN/exports/FORMAT,
or for a model's folder to exports/NAME/FORMAT, unless --out names another; its manifest.json is written last, so a
folder with a manifest is complete. A format is a module `to_FORMAT.py` beside this file with
`export(run, model_folder, out) -> str`, which returns a line that says what was written. If a run has many models, each
goes to a folder of its own, unless the format has `export_together(run, {member: model_folder}, out)`.

For `site`, RUN is the folder to write: an index and a page for each workload, with the models that ship.
"""

import importlib
import inspect
import os
import sys
from argparse import Action
from collections.abc import Callable
from pathlib import Path

from common.config.mistakes import nearest
from common.config.option_parser import Parser
from common.packages import import_folder, missing, recorded_folder
from models import shipped

UNTRAINED = "train it first, or give another run"


def main() -> None:
    """Run the command."""
    try:
        args = parser().completing(completed).parse_args()
        add_workload(args.workload or recorded_folder(args.run))
        extra = {"merged": args.merged, "license": args.license, "push": args.push}
        extra |= {"format": args.code, "board": args.board}
        given = {name: value for name, value in extra.items() if value}
        print(export(args.format, args.run, args.which, args.out, **given))
    except KeyboardInterrupt:  # before the manifest, without which an export is not complete
        print("stopped by Ctrl-C", file=sys.stderr)
        sys.exit(130)
    except (ValueError, OSError, ModuleNotFoundError) as error:
        if (message := missing(error) if isinstance(error, ModuleNotFoundError) else str(error)) is None:
            raise
        print(f"error: {message}", file=sys.stderr)
        sys.exit(2)


def parser() -> Parser:
    """Return the parser of this command; it raises ValueError for unknown arguments."""
    parser = Parser(prog="python -m exporters", description=__doc__)
    add = parser.add_argument
    add("format", metavar="FORMAT", help=f"one of: {', '.join(formats())}")
    add("run", metavar="RUN", type=Path, help="a run's folder, as in runs/cvrp/default, or a model's")
    add("--out", metavar="FOLDER", type=Path, help="where to write; RUN/exports/FORMAT if not given")
    add("--which", choices=("best", "last"), default="best", help="which model of the run; best")
    add("--merged", action="store_true", help="also write the base with the adapters merged in, if there are any")
    add("--push", metavar="OWNER/NAME", help="upload it to this repository of Hugging Face's hub; a new one is private")
    about = "license of the weights for the card, as in cc-by-4.0; this project's if they learnt only from its data"
    add("--license", metavar="ID", help=about)
    about = "for rp2040: also write a library in C for pico-sdk, Arduino, PlatformIO"
    add("--format", choices=("c",), dest="code", help=about)
    add("--board", choices=("pico", "pico2", "both"), help="for rp2040: the board that story.uf2 is for; both")
    about = "the folder of a workload of your own, if the run does not name it; its code is run"
    add("--workload", metavar="FOLDER", type=Path, help=about)
    return parser


def formats() -> list[str]:
    """Names of the formats, by the modules beside this file."""
    return sorted(path.stem.removeprefix("to_") for path in Path(__file__).parent.glob("to_*.py"))


def completed(prefix: str, action: Action, **_: object) -> list[str]:
    """Return the values of an argument for argcomplete."""
    runs = [str(path.parent) for path in Path("runs").glob("*/*/config.yaml")]
    return {"format": formats(), "run": runs}.get(action.dest, [])


def add_workload(folder: Path | None) -> None:
    """Import the package of a user's own workload, which registers its families."""
    if folder and not (folder / "__init__.py").is_file():
        raise ValueError(f"there is no workload in {folder}; give that of the run, as in --workload my/waves")
    if folder:
        import_folder(folder.resolve())


def export(name: str, run: Path, which: str, out: Path | None, **extra: object) -> str:
    """Check the arguments and call the format's exporter, with the `extra` options that not every format has."""
    if name not in formats():
        near = nearest(name, formats())
        hint = f"did you mean {near[0]}? " if near else ""
        raise ValueError(f"unknown format {name!r}; {hint}known formats: {', '.join(formats())}")
    module = importlib.import_module(f"exporters.to_{name}")
    if hasattr(module, "export_shipped"):
        if out or extra or which != "best":
            raise ValueError(f"{name} takes the folder to write and no options")
        return str(module.export_shipped(run))
    if not run.is_dir():
        known = {path.name: path for near in (shipped.FOLDER, run.parent) for path in near.glob("*/")}
        near = nearest(run.name, known)
        hint = f"did you mean {os.path.relpath(known[near[0]])}?" if near else "give one, as in runs/cvrp/default"
        raise ValueError(f"no run at {run}; {hint}")
    exporter: Callable[..., str] = module.export
    for option in extra:
        if option not in inspect.signature(exporter).parameters:
            raise ValueError(f"the format {name} has no --{option}; leave it out")
    if (run / "config.json").is_file():
        if which != "best":
            raise ValueError(f"{run} is the folder of one model; leave out --which {which}")
        return exporter(run, run, out or Path("exports") / run.resolve().name / name, **extra)
    out = out or run / "exports" / name
    if not (members := sorted((run / "members").glob("*/"), key=shipped.order)):
        there = [one for one in ("best", "last") if (run / "model" / one).is_dir()]
        if which not in there:
            mend = f"it has model/{there[0]}: add --which {there[0]}" if there else UNTRAINED
            raise ValueError(f"{run} has no model/{which}; {mend}")
        return exporter(run, run / "model" / which, out, **extra)
    if not (trained := [member for member in members if (member / "model" / which).is_dir()]):
        raise ValueError(f"no member of {run} has a model/{which}; {UNTRAINED}")
    models = {member: member / "model" / which for member in trained}
    lines = [module.export_together(run, models, out)] if hasattr(module, "export_together") else []
    for member, folder in models.items() if not lines else ():
        own = {"push": f"{extra['push']}-{member.name}"} if "push" in extra else {}  # each has a repository of its own
        lines.append(exporter(member, folder, out / member.name, **{**extra, **own}))
    lines += [f"{member.name} is left out: it has no model/{which}" for member in members if member not in trained]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
