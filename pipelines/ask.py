"""Rank images by people's answers about pairs of them, and write which pairs to ask about next.

    python pipelines/ask.py my_pairs/ --pairs 100 --next next.csv
    python pipelines/ask.py my_pairs/answers.csv --pairs 100 --next next.csv --ranking ranking.csv
    python pipelines/ask.py my_pairs/ --ranking ranking.csv data.columns.winner=PICKED data.columns.loser=OVER
    python pipelines/ask.py my_pairs/answers.csv --model runs/lmol/preferred/model/best --ranking ranking.csv

SOURCE is a folder of images, with a CSV of answers among them once there are some, or that CSV: img1,img2,label,
img1,img2,winner or winner,loser; name other columns as in training. Fill in the empty column of next.csv, as the last
printed line says, append it to your answers, and run this again. Rankings have 95 % intervals. The prior of the scores
is that of --model, a comparator trained on such answers, or else the images' similarity.
"""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])  # replaced: names in pipelines/ would shadow libraries

from common.config.option_parser import Parser
from common.foreign_text import printable
from pipelines import arguments, exits


def main() -> None:
    """Run the command."""
    parser = Parser(prog="python pipelines/ask.py", description=__doc__)
    parser.add_argument("source", metavar="SOURCE", type=Path, help="folder of images, or CSV of answers beside them")
    parser.add_argument("words", metavar="KEY=NAME", nargs="*", help="columns, as data.columns.winner=PICKED")
    parser.add_argument("--model", metavar="FOLDER", type=Path, help="a comparator, such as runs/lmol/mine/model/best")
    parser.add_argument("--pairs", type=int, default=100, metavar="N", help="how many pairs to ask about next; 100")
    parser.add_argument("--next", metavar="FILE", type=Path, help="CSV to write these pairs to")
    parser.add_argument("--ranking", metavar="FILE", type=Path, help="CSV to write the ranking to")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the candidate pairs; 0")
    args = parser.completing(arguments.complete).parse_intermixed_args()
    if not (args.next or args.ranking):
        parser.error("nothing to write: give --next FILE, --ranking FILE, or both")
    if args.next and args.ranking and args.next.resolve() == args.ranking.resolve():
        parser.error(f"--next and --ranking are one file, {args.next}; name two")
    if min(args.pairs, args.seed) < 0:
        parser.error(f"--pairs is {args.pairs} and --seed {args.seed}; give 0 or more")
    from pipelines.workloads.lmol import asking  # torch takes seconds

    ranking = asking.rank(args.source, args.model, [path for path in (args.next, args.ranking) if path], args.words)
    for line in ranking.notes:
        print(printable(line))
    if args.next:
        print(printable(ranking.write_next(args.next, args.pairs, args.seed)))
    if args.ranking:
        print(printable(ranking.write_ranking(args.ranking, args.next)))


if __name__ == "__main__":
    exits.run_main(main)
