"""Answer over HTTP with trained runs: predictions, streams of text, and a page.

    python pipelines/serve.py cvrp/cvrp-20
    python pipelines/serve.py cvrp/default bep/mine crypto/default --port 8080
    python pipelines/serve.py tinystories=exports/stories

A RUN is WORKLOAD/NAME or its folder, WORKLOAD/NAME/MEMBER for one of a run of
many models, or WORKLOAD=FOLDER for a folder with a model, such as an export.
http://127.0.0.1:8000/ is the page, /docs tells what can be asked. Only this
machine is answered, unless --host says otherwise. SIGTERM and Ctrl-C end it
after the requests that it has begun to answer.
"""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])  # replaced: names in pipelines/ would shadow libraries

from common.config.arguments import Parser
from common.errors import UserError
from pipelines import cli, completions


def main() -> None:
    known = parser()
    completions.offer(known)
    args = known.parse_args()
    if not args.runs:
        raise UserError("give one run or more to answer with, as in cvrp/default; pipelines/runs.py lists them")
    cli.announce(f"loading {', '.join(args.runs)}")
    import uvicorn

    from pipelines.server import app, connections, opening

    limits = opening.limits(args)
    runs = [opening.opened(word, args.device, limits) for word in args.runs]
    opening.check_names(runs)
    listener = opening.listening(args.host, args.port)
    host, port = listener.getsockname()[:2]
    print(f"http://{f'[{host}]' if ':' in host else host}:{port}/ answers with {', '.join(args.runs)}", flush=True)
    config = uvicorn.Config(
        app.make(runs, limits, opening.hosts(args.host, limits.token)),
        log_level="warning",
        access_log=False,
        http=connections.Connection,
        server_header=False,
        timeout_keep_alive=10,
        timeout_graceful_shutdown=args.seconds,
    )
    uvicorn.Server(config).run(sockets=[listener])


def parser() -> Parser:
    """Return the parser of this command."""
    made = Parser(prog="python pipelines/serve.py", description=__doc__)
    add = made.add_argument
    add("runs", nargs="*", metavar="RUN", help="WORKLOAD/NAME, a run's folder, or WORKLOAD=FOLDER")
    add("--host", default="127.0.0.1", help="address to listen on; 127.0.0.1")
    add("--port", type=int, default=8000, help="8000; 0: any that is free")
    add("--token-file", type=Path, metavar="FILE", help="file with a token that requests must bring")
    add("--body-megabytes", type=float, default=8, metavar="N", help="largest body of a request; 8")
    add("--waiting", type=int, default=256, metavar="N", help="most unanswered requests of a run; 256")
    add("--seconds", type=int, default=60, metavar="N", help="longest time for an answer; 60")
    add("--device", help="such as cpu or cuda:1; cuda where there is a GPU, else cpu")
    return made


if __name__ == "__main__":
    cli.run_main(main)
