"""Serve trained runs over HTTP: predictions, streamed text, and a page.

    python pipelines/serve.py
    python pipelines/serve.py cvrp/cvrp-20
    python pipelines/serve.py cvrp/default bep/mine crypto/default --port 8080
    python pipelines/serve.py tinystories=exports/stories

A RUN is WORKLOAD/NAME or its folder, WORKLOAD/NAME/MEMBER for one model of
several, or WORKLOAD=FOLDER for a model folder, such as an export. Without any,
each workload's newest run is served, else the model that ships.
http://127.0.0.1:8000/ is the page, /docs describes the requests. Only this
machine is answered, unless --host says otherwise. SIGTERM and Ctrl-C let
requests under way finish.
"""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])  # replaced: names in pipelines/ would shadow libraries

from common.config.arguments import Parser
from common.errors import UserError
from pipelines import cli, completions, workloads
from pipelines.answers import trained


def main() -> None:
    """Run the command."""
    known = parser()
    completions.offer(known)
    args = known.parse_args()
    args.runs = args.runs or usual_runs()
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


def usual_runs() -> list[str]:
    """Return WORKLOAD/NAME of each workload's usual model. Raises UserError where no workload has one."""
    found, reasons = [], []
    for workload in workloads.names():
        try:
            found.append(f"{workload}/{trained.usual(workload)}")
        except UserError as error:
            reasons.append(str(error))
    if not found:
        raise UserError(reasons[0])
    for reason in reasons:
        cli.announce(f"not served: {reason}")
    return found


def parser() -> Parser:
    """Return the parser of this command."""
    made = Parser(prog="python pipelines/serve.py", description=__doc__)
    add = made.add_argument
    add("runs", nargs="*", metavar="RUN", help="WORKLOAD/NAME, a run's folder, or WORKLOAD=FOLDER")
    add("--host", default="127.0.0.1", help="address to listen on; 127.0.0.1")
    add("--port", type=int, default=8000, help="8000; 0: any free one")
    add("--token-file", type=Path, metavar="FILE", help="file with the token required of requests")
    add("--body-megabytes", type=float, default=8, metavar="N", help="largest body of a request; 8")
    add("--waiting", type=int, default=256, metavar="N", help="most unanswered requests of a run; 256")
    add("--seconds", type=int, default=60, metavar="N", help="longest time for an answer; 60")
    add("--device", help="such as cpu or cuda:1; by default a GPU if there is one")
    return made


if __name__ == "__main__":
    cli.run_main(main)
