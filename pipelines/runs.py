"""List, compare and clean up the runs below this folder.

    python pipelines/runs.py
    python pipelines/runs.py compare cvrp/default cvrp/dgt-50
    python pipelines/runs.py clean                     # shows what would go
    python pipelines/runs.py clean --yes
    python pipelines/runs.py clean cvrp/dgt-50 --yes   # a whole run

A run is WORKLOAD/NAME or its folder; a member of one, WORKLOAD/NAME/MEMBER.
"""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])  # replaced: names in pipelines/ would shadow libraries

from common.config.arguments import Parser
from pipelines import arguments, cli
from pipelines.inventory import clean, found


def parser() -> Parser:
    """Return the parser of this command."""
    parser = Parser(prog="python pipelines/runs.py", description=__doc__)
    commands = parser.add_subparsers(dest="command", metavar="compare or clean")
    compared = commands.add_parser("compare", help="figures, settings and curves of two or more runs")
    compared.add_argument(
        "runs", nargs="+", metavar="RUN", help="of one workload; the others are compared to the first"
    )
    compared.add_argument("--picture", type=Path, default=Path("runs/comparison.svg"), help="file for the curves")
    cleaned = commands.add_parser("clean", help="remove runs, or what no run needs any more")
    cleaned.add_argument("runs", nargs="*", metavar="RUN", help="to remove; none: what no run needs any more")
    cleaned.add_argument("--checkpoints", action="store_true", help="also those of runs that are done")
    cleaned.add_argument("--yes", action="store_true", help="remove it; without, only show it")
    return parser


def main() -> None:
    """Run the command."""
    known = parser()
    arguments.offer(known)
    args = known.parse_args()
    if args.command == "compare":
        from pipelines.inventory import compare  # with numpy and matplotlib

        print(compare.compared(found.find(args.runs), args.picture))
    elif args.command == "clean":
        print(clean.clean(found.find(args.runs), bool(args.runs), args.checkpoints, args.yes))
    else:
        print(found.table(found.find()) or "no run below runs/ yet; python pipelines/train.py --help says how to begin")


if __name__ == "__main__":
    cli.run_main(main)
