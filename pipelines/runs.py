"""List, compare and clean up the runs below this folder.

    python pipelines/runs.py
    python pipelines/runs.py compare cvrp/default cvrp/dgt-50
    python pipelines/runs.py clean                     # lists what it would remove
    python pipelines/runs.py clean --yes
    python pipelines/runs.py clean cvrp/dgt-50 --yes   # a whole run; --checkpoints: only these

A run is WORKLOAD/NAME or its folder; a member of one, WORKLOAD/NAME/MEMBER.
"""

import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])  # replaced: names in pipelines/ would shadow libraries

from common.config.option_parser import Parser
from common.disk import prepared
from common.disk.files import remove
from common.disk.lock import is_held
from common.errors import UserError
from pipelines import arguments, exits, workloads
from pipelines.inventory import found as inventory

DATA = Path("data")
Waste = tuple[Path, str]  # a file or folder to remove, and why


def main() -> None:
    """Run the command."""
    parser = Parser(prog="python pipelines/runs.py", description=__doc__)
    commands = parser.add_subparsers(dest="command", metavar="compare or clean")
    compared = commands.add_parser("compare", help="figures, settings and curves of two or more runs")
    compared.add_argument("runs", nargs="+", metavar="RUN", help="of one workload; compared to the first of them")
    compared.add_argument("--picture", type=Path, default=Path("runs/comparison.svg"), help="file for the curves")
    cleaned = commands.add_parser("clean", help="remove runs, or what no run needs any more")
    cleaned.add_argument("runs", nargs="*", metavar="RUN", help="to remove; none: what no run needs any more")
    cleaned.add_argument("--checkpoints", action="store_true", help="also those of finished runs; of RUN, only these")
    cleaned.add_argument("--yes", action="store_true", help="remove; otherwise only list")
    args = parser.completing(arguments.complete).parse_args()
    arguments.end_quietly()
    if args.command == "compare":
        from pipelines.inventory import compare  # with numpy and matplotlib

        print(compare.compared(inventory.find(args.runs), args.picture))
    elif args.command == "clean":
        print(clean(inventory.find(args.runs), bool(args.runs), args.checkpoints, args.yes))
    else:
        runs = inventory.table(inventory.find(), *[shutil.get_terminal_size().columns] * sys.stdout.isatty())
        print(runs or "no run below runs/ yet; pipelines/train.py --help says how to begin")


def clean(runs: Sequence[inventory.Found], whole: bool, checkpoints: bool, really: bool) -> str:
    """Remove `runs` as a `whole`, or their `checkpoints` (UserError in training), else what no run needs; list that."""
    # A member is busy while its run trains: it may be training, or not yet be counted as done.
    locks = {each.name: [each.run.folder.parents[1] / ".lock", *each.run.folder.rglob(".lock")] for each in runs}
    busy = [each for each in runs if any(map(is_held, locks[each.name]))]
    if whole and busy:
        raise UserError(f"{busy[0].name} is being trained or followed; stop that first")
    waste = [(each.run.folder, "asked for") for each in runs]
    if not whole:
        waste = [*_unneeded([each for each in runs if each not in busy], checkpoints), *_unused_data(runs)]
    elif checkpoints:
        waste = [(path, reason) for path, reason in _unneeded(runs, checkpoints) if path.name == "checkpoints"]
    if not waste:
        return "there is nothing to remove"
    lines = [f"  {inventory.human(inventory.size(path)):>7}  {path}  ({reason})" for path, reason in waste]
    total = inventory.human(sum(inventory.size(path) for path, _ in waste))
    if not really:
        return "\n".join(["would be removed:", *lines, f"{total} in all; add --yes to remove it"])
    for path, _ in waste:
        remove(path)
    return "\n".join(["removed:", *lines, f"{total} in all"])


def _unneeded(runs: Sequence[inventory.Found], checkpoints: bool) -> Iterator[Waste]:
    for found in runs:
        if found.run.is_blank() and not found.run.members():
            yield (found.run.folder, "nothing came of it")
        for run in (found.run, *found.run.members()):
            for pattern in (".*.tmp", "[cm]*/.*.tmp", ".*.old", "[cm]*/.*.old"):
                yield from ((path, "half-written") for path in sorted(run.folder.glob(pattern)))
            if checkpoints and run.outcome().get("state") == "done" and run.checkpoints.is_dir():
                yield (run.checkpoints, "its training is done")


def _unused_data(runs: Sequence[inventory.Found]) -> Iterator[Waste]:
    """Yield prepared data of no run; a workload with unreadable runs keeps all."""
    for folder in sorted(DATA.glob("*/")):
        if folder.name not in workloads.names() or is_held(folder / ".lock"):
            continue
        config = workloads.find(folder.name).config
        own = [run for found in runs if found.run.workload == folder.name for run in (found.run, *found.run.members())]
        try:
            sections = [run.config(config).data for run in own]
        except UserError:
            continue
        used = {prepared.folder_for(folder.name, data, data.layout) for data in sections}
        unused = sorted(set(folder.glob("*/")) - used)
        yield from ((path, f"prepared data of no run below {inventory.ROOT}/") for path in unused)


if __name__ == "__main__":
    exits.run_main(main)
