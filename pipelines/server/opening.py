"""Arguments of the serve command: which runs, and for whom."""

from __future__ import annotations

import ipaddress
import socket
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from common.config.arguments import nearest
from common.errors import UserError
from models import shipped
from pipelines import workloads
from pipelines.answers import trained
from pipelines.run.folder import Run
from pipelines.server.answering import Answering
from pipelines.server.limits import Limits


def opened(word: str, device: str | None, limits: Limits) -> Answering:
    """Load the run that a word names. Raises UserError for an unknown one."""
    workload, equals, folder = word.partition("=")
    if equals:
        if (Path(folder) / "config.yaml").is_file():
            raise UserError(f"{word}: this is a run's folder, not a model's; give {folder} alone")
        return Answering(trained.find(workload, "", Path(folder), device), "", limits)
    _no_model_folder(Path(word))
    parts = Path(word).parts
    parts = parts[parts.index("runs") + 1 :] if "runs" in parts else parts
    parts = tuple(part for part in parts if part != "members")
    if len(parts) not in (2, 3):
        raise UserError(f"{word}: a run is WORKLOAD/NAME, as in cvrp/default, or its folder; see pipelines/runs.py")
    workloads.inputs(parts[0])  # refuses an unknown workload
    run = Run(parts[0], "/".join(parts[1:]))
    if not trained.folders_of(run):
        known = list(dict.fromkeys([*run.names(), *shipped.names(run.workload)]))
        near = [f"{run.workload}/{name}" for name in nearest(run.name, known, 3) or known[:3]]
        hint = f"; did you mean {' or '.join(near)}?" if near else "."
        raise UserError(f"there is no run {run.folder}{hint} {run.workload}=FOLDER takes a folder with a model")
    return Answering(trained.find(parts[0], run.name, None, device), run.verdict(), limits)


def _no_model_folder(path: Path) -> None:
    """Raise UserError for a model's folder where a run is expected; say what to give instead."""
    if not (path / "config.json").is_file():
        return
    name = path.resolve().name
    own = [f"{workload}/{name}" for workload in workloads.names() if name in shipped.names(workload)]
    instead = own[0] if own and path.resolve().parent == shipped.FOLDER else f"WORKLOAD={path}, as in cvrp={path}"
    raise UserError(f"{path}: this is a model's folder, not a run's; give {instead}")


def check_names(runs: Sequence[Answering]) -> None:
    """Raise UserError for two runs of one name."""
    names = [run.name for run in runs]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"two runs are called {name}; give one of them, or rename a folder")


def limits(args: Namespace) -> Limits:
    """Return the bounds set by the command's options. Raises UserError for an unusable token or bound."""
    token = None
    if args.token_file:
        try:
            token = args.token_file.read_text().strip()
        except OSError as error:
            raise UserError(f"--token-file {args.token_file}: cannot be read: {error.strerror}") from error
        if len(token) < 16 or not token.isascii() or not token.isprintable():
            raise UserError(f"--token-file {args.token_file}: a token is 16 or more printable ASCII characters")
    elif not is_local(args.host):
        print(f"--host {args.host}: anyone who can reach this machine is answered; see --token-file", file=sys.stderr)
    for name in ("body_megabytes", "waiting", "seconds"):
        if getattr(args, name) <= 0:
            raise UserError(f"--{name.replace('_', '-')} {getattr(args, name)} must be above 0")
    return Limits(int(args.body_megabytes * 2**20), waiting=args.waiting, seconds=args.seconds, token=token)


def is_local(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def hosts(host: str, token: str | None) -> list[str] | None:
    """Return the names, beside IP addresses, that requests may address; None: any.

    Otherwise the owner of any name could let it resolve to this machine, and their page read the answers.
    """
    if token:  # no page of another site has it
        return None
    if is_local(host):
        return ["localhost"]
    own = socket.gethostname().lower()
    return sorted({"localhost", host.lower(), own, f"{own}.local", socket.getfqdn().lower()})


def listening(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises UserError for an address in use or foreign."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=1024)
    except (OSError, OverflowError) as error:
        raise UserError(f"--host {host} --port {port}: cannot listen there ({error}); give another --port") from error
