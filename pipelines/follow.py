"""Follow a stream: answer new items, log the answers, retrain at intervals, and warn when the model no longer fits.

    python pipelines/follow.py --workload crypto --name mine
    python pipelines/follow.py --workload crypto --name mine --once
    python pipelines/follow.py --workload crypto --name mine --refit-hours 24 \\
        data.folder=null data.source=ccxt data.exchange=kraken

The trained run --name answers each new candle of data.folder, or of an
exchange, as predict.py does. Each answer is a line of JSON in
runs/<workload>/<name>/follow/answers.jsonl, written exactly once even if the
program is killed; start it again to continue.

Exit status: 128 + n stopped by signal n; with --once 0, or 1 if a file or an
exchange failed (without it, both are retried); 2 a mistake that you can fix.
"""

import sys
import threading
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])  # replaced: names in pipelines/ would shadow libraries

from common.config.option_parser import Parser
from common.disk.lock import held
from common.errors import Stopped, UserError
from common.stopping import StopRequest
from pipelines import arguments, exits, run_config, workloads


def main() -> None:
    """Run the command."""
    args = arguments.parse(__doc__, lambda args, kind, run: run.config(kind.config, args.words), further=options)
    workload, opened, run = workloads.find(args.workload), workloads.feed(args.workload), run_config.run_of(args)
    config = run.config(workload.config, args.words)
    if not args.refit_hours >= 0 or (args.refit_hours and args.once):
        raise UserError(f"--refit-hours {args.refit_hours:g}: hours above 0, not with --once, which never retrains")
    if "/" in run.name:
        raise UserError(f"--name {args.name}: a member is followed with its run; give --name {run.name.split('/')[0]}")
    folder = run.folder / "follow"
    feed = opened(config, folder)
    exits.announce(f"following {', '.join(feed.series)} into {folder / 'answers.jsonl'}")
    from pipelines.answers import trained
    from pipelines.following.loop import Follower
    from pipelines.following.refits import Refits

    stop, wake = StopRequest(), threading.Event()
    with held(folder / ".lock"), stop.listening(wake.set):
        follower = Follower(run.name, folder, feed, lambda name: trained.find(args.workload, name, None, args.device))
        refits = Refits(follower, args.workload, run, folder, args.refit_hours)
        try:
            while not stop.number:
                new = follower.look()
                if args.once and not new:
                    sys.exit(1 if follower.failing else 0)
                if args.refit_hours:
                    refits.step()
                wake.wait(0 if new or refits.judging else feed.every)
        finally:
            refits.end()
        raise Stopped(stop.number, then="start it again to continue")


def options(known: Parser) -> None:
    """Add the options of this command."""
    known.add_argument("--once", action="store_true", help="answer what is new, then exit")
    known.add_argument("--refit-hours", type=float, default=0, metavar="H", help="retrain every H hours; 0: never")
    known.add_argument("--device", help="such as cpu or cuda:1; by default a GPU if there is one")


if __name__ == "__main__":
    exits.run_main(main)
