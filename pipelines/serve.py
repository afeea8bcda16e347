"""Serve trained runs over HTTP: predictions, streamed text, and a page.

    python pipelines/serve.py
    python pipelines/serve.py --workload tinystories
    python pipelines/serve.py cvrp/cvrp-20
    python pipelines/serve.py cvrp/default bep/mine crypto/default --port 8080
    python pipelines/serve.py tinystories=exports/stories

A RUN is WORKLOAD/NAME or its folder, WORKLOAD/NAME/MEMBER for one model of
several, or WORKLOAD=FOLDER for a model folder, such as an export. Without any,
each workload's newest run is served, else the model that ships.
http://127.0.0.1:8000/ is the page, /docs describes the requests. Only this
machine can connect unless --host is given. SIGTERM and Ctrl-C let requests
under way finish.
"""

import ipaddress
import socket
import sys
from argparse import Namespace
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])  # replaced: names in pipelines/ would shadow libraries

from common.config.option_parser import Parser
from common.errors import UserError, as_user_error
from models import shipped
from pipelines import arguments, exits, workloads
from pipelines.answers import trained
from pipelines.run.folder import Run
from pipelines.server.answering import Answering
from pipelines.server.limits import Limits


def main() -> None:
    """Run the command."""
    args = parsed()
    args.runs = named(args)
    exits.announce(f"loading {', '.join(args.runs)}")
    import uvicorn

    from pipelines.server import app, guard

    limits = limits_of(args)
    runs = [opened(word, args.device, limits) for word in args.runs]
    names = [run.name for run in runs]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UserError(f"two runs are called {twice[0]}; give one of them, or rename a folder")
    listener = listening(args.host, args.port)
    certificate, key = args.certificate or (None, None)
    config = uvicorn.Config(
        app.make(runs, limits, hosts(args.host, limits.token)),
        log_level="warning",
        access_log=False,
        http=guard.Connection,
        server_header=False,
        timeout_keep_alive=10,
        timeout_graceful_shutdown=args.seconds,
        ssl_certfile=certificate,
        ssl_keyfile=key,
    )
    with as_user_error(f"--certificate {certificate} {key}: not a certificate and its key (", ")", OSError):
        config.load()  # an SSLError is an OSError
    host, port = listener.getsockname()[:2]
    shown = f"http{'s' if certificate else ''}://{f'[{host}]' if ':' in host else host}"
    print(f"{shown}:{port}/ answers with {', '.join(args.runs)}", flush=True)
    uvicorn.Server(config).run(sockets=[listener])


def parsed() -> Namespace:
    """Return the words of the command line."""
    known = Parser(prog="python pipelines/serve.py", description=__doc__)
    add = known.add_argument
    add("runs", nargs="*", metavar="RUN", help="WORKLOAD/NAME, a run's folder, or WORKLOAD=FOLDER")
    add("--workload", metavar="W", help="instead of RUN: the model of this workload that predict.py uses")
    add("--name", metavar="N", help="with --workload: a run or a model that ships; the newest run")
    add("--host", default="127.0.0.1", help="address to listen on; 127.0.0.1")
    add("--port", type=int, default=8000, help="8000; 0: any free one")
    add("--token-file", type=Path, metavar="FILE", help="file with the token that requests must carry")
    add("--certificate", nargs=2, metavar=("CRT", "KEY"), help="certificate and key: serve https, as Word needs")
    add("--body-megabytes", type=float, default=8, metavar="N", help="largest request body; 8")
    add("--waiting", type=int, default=256, metavar="N", help="most unanswered requests of a run; 256")
    add("--seconds", type=int, default=60, metavar="N", help="time limit of an answer; 60")
    add("--device", help="such as cpu or cuda:1; by default a GPU if there is one")
    return known.completing(arguments.complete).parse_args()


def named(args: Namespace) -> list[str]:
    """Return the runs to serve; UserError for words that contradict each other."""
    if args.workload and args.runs:
        raise UserError(f"--workload {args.workload} replaces RUN {args.runs[0]}; leave one of them out")
    if args.workload:
        workloads.inputs(args.workload)  # refuses an unknown workload
        return [f"{workloads.name_of(args.workload)}/{args.name or trained.usual(args.workload, exits.announce)}"]
    if args.name:
        raise UserError(f"--name {args.name} needs --workload, as in --workload cvrp --name {args.name}")
    return args.runs or usual_runs()


def usual_runs() -> list[str]:
    """Return WORKLOAD/NAME of each workload's usual model. Raises UserError where no workload has one."""
    found, reasons = [], []
    for workload in workloads.names():
        try:
            found.append(f"{workload}/{trained.usual(workload, exits.announce)}")
        except UserError as error:
            reasons.append(str(error))
    if not found:
        raise UserError(reasons[0])
    for reason in reasons:
        exits.announce(f"not served: {reason}")
    return found


def opened(word: str, device: str | None, limits: Limits) -> Answering:
    """Load the run that a word names. Raises UserError for an unknown one."""
    workload, equals, folder = word.partition("=")
    if equals:
        if (Path(folder) / "config.yaml").is_file():
            raise UserError(f"{word}: this is a run's folder, not a model's; give {folder} alone")
        return Answering(trained.find(workload, "", Path(folder), device), "", limits)
    path = Path(word)
    if (path / "config.json").is_file():
        name, ours = path.resolve().name, path.resolve().parent == shipped.FOLDER
        instead = f"{name.partition('-')[0]}/{name}" if ours else f"WORKLOAD={path}, as in cvrp={path}"
        raise UserError(f"{path}: this is a model's folder, not a run's; give {instead}")
    whole = Path(word).parts
    parts = [part for part in whole[whole.index("runs") + 1 if "runs" in whole else 0 :] if part != "members"]
    if len(parts) not in (2, 3):
        newest = f"--workload {word} serves the newest" if word in workloads.names() else "see pipelines/runs.py"
        raise UserError(f"{word}: a run is WORKLOAD/NAME, as in cvrp/default, or its folder; {newest}")
    workloads.inputs(parts[0])  # refuses an unknown workload
    run = Run(parts[0], "/".join(parts[1:]))
    if not trained.folders_of(run):
        unknown = run.unknown(shipped.names(run.workload), before=f"{run.workload}/")
        raise UserError(f"{unknown} {run.workload}=FOLDER takes a folder with a model")
    return Answering(trained.find(parts[0], run.name, None, device), run.verdict(), limits)


def limits_of(args: Namespace) -> Limits:
    """Return the bounds set by the command's options. Raises UserError for an unusable token or bound."""
    token = None
    if args.token_file:
        with as_user_error(f"--token-file {args.token_file}: cannot be read: ", of=OSError):
            token = args.token_file.read_text(errors="replace").strip()
        if len(token) < 16 or not token.isascii() or not token.isprintable():
            raise UserError(f"--token-file {args.token_file}: a token is 16 or more printable ASCII characters")
    elif not is_local(args.host):
        print(f"--host {args.host}: anyone who can reach this machine is answered; see --token-file", file=sys.stderr)
    for name in ("body_megabytes", "waiting", "seconds"):
        if not 0 < getattr(args, name) < sys.maxsize:
            raise UserError(f"--{name.replace('_', '-')} {getattr(args, name)} must be above 0")
    return Limits(int(args.body_megabytes * 2**20), waiting=args.waiting, seconds=args.seconds, token=token)


def is_local(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def hosts(host: str, token: str | None) -> list[str] | None:
    """Return the host names, besides IP addresses, that requests may use; None: any.

    Against DNS rebinding: any other name could resolve to this machine and let its owner's page read answers.
    """
    if token:  # which no other site's page has
        return None
    if is_local(host):
        return ["localhost"]
    own = socket.gethostname().lower()
    return sorted({"localhost", host.lower(), own, f"{own}.local", socket.getfqdn().lower()})


def listening(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises UserError for an address in use or foreign."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    where, kinds = f"--host {host} --port {port}", (OSError, OverflowError)
    with as_user_error(f"{where}: cannot listen there (", "); give another", kinds):
        return socket.create_server((host, port), family=family, backlog=1024)


if __name__ == "__main__":
    exits.run_main(main)
