"""Files of operations research: VRPLIB's `.vrp` in any metric of METRICS, with PyVRP's keys for time windows, depots,
vehicles and prizes; and CVRPLIB's `.sol` with solutions: to begin with, to compare with, and to write.

Node numbers may be any distinct whole numbers; nodes, and the rows of an explicit matrix, are taken in their order with
the depot moved to the front, and further ones to the end. DISTANCE limits a route's travel, waiting and SERVICE_TIME
together. A file must end with EOF or with the -1 that closes DEPOT_SECTION; any other is refused as cut short.
"""

import re
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np

from common.errors import UserError
from models.routing.edge_weight_types import LAYOUTS, METRICS, in_a_plane
from models.routing.problems import MAX_COORDINATE, MOST_CAPACITY, MOST_CUSTOMERS, Problem, Vehicles, usual_rounding

NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
SECTIONS = {  # title: columns of each row
    "NODE_COORD_SECTION": ("number", "x", "y"),
    "DEMAND_SECTION": ("number", "demand"),
    "DEPOT_SECTION": (),
}
OPTIONAL = {  # of nodes
    "TIME_WINDOW_SECTION": ("number", "earliest", "latest time"),
    "SERVICE_TIME_SECTION": ("number", "time"),
    "PRIZE_SECTION": ("number", "prize"),
}
# Of vehicles: rows of vehicle and value in a section, or one value for all of them.
OF_VEHICLES = {
    "CAPACITY": "capacity",
    "VEHICLES_DEPOT": "depot",
    "VEHICLES_FIXED_COST": "fixed",
    "VEHICLES_UNIT_DISTANCE_COST": "rate",
    "VEHICLES_MAX_DISTANCE": "longest",
    "VEHICLES_MAX_DURATION": "limit",
}
WEIGHTS = "EDGE_WEIGHT_SECTION"
UNREAD_SECTIONS = ("DISPLAY_DATA_SECTION",)
OPEN = ("OVRP", "OVRPTW")  # routes end at their last customer
TYPES = ("CVRP", "DCVRP", "ACVRP", "VRPTW", "CVRPTW", "MDVRP", "MDVRPTW", "HFVRP", "HFVRPTW", "PCVRP", "PCVRPTW", *OPEN)
# Keys that are read or restrict nothing. Any other key (BACKHAUL_SECTION, ...) might restrict the routes.
HEADER_KEYS = (
    *("NAME", "COMMENT", "TYPE", "DIMENSION", "DISTANCE", "SERVICE_TIME", "VEHICLES", *OF_VEHICLES),
    *("EDGE_WEIGHT_TYPE", "EDGE_WEIGHT_FORMAT", "NODE_COORD_TYPE", "DISPLAY_DATA_TYPE"),
)

Header = dict[str, str]
Rows = list[tuple[int, list[str]]]  # (line number, words) of each row of a section


def read_vrp(path: Path) -> list[Problem]:
    """Return the one problem of a `.vrp` file; raise UserError, in one line, for an unusable file."""
    # Only comments may hold text beyond ASCII; elsewhere it is refused as no number.
    header, sections, complete = _split(path.read_bytes().decode("utf-8-sig", errors="replace"))
    metric = _check_kind(header, sections)
    places, *others = SECTIONS
    missing = [title for title in (WEIGHTS if metric == "EXPLICIT" else places, *others) if title not in sections]
    if missing or not complete:
        what = missing[0] if missing else "its end (EOF, or the -1 that closes DEPOT_SECTION)"
        raise UserError(f"{what} is missing; the file may be cut short, download it again or add the missing part")
    dimension = _dimension(header, metric)
    coords = {} if metric == "EXPLICIT" else _nodes(sections, "NODE_COORD_SECTION", dimension)
    demands = _nodes(sections, "DEMAND_SECTION", dimension)
    for has, rows in (("NODE_COORD_SECTION", coords), *((t, _nodes(sections, t, dimension)) for t in OPTIONAL)):
        if rows and (unmatched := sorted(rows.keys() ^ demands.keys())):
            has, lacks = ("DEMAND_SECTION", has) if unmatched[0] in demands else (has, "DEMAND_SECTION")
            raise UserError(f"node {unmatched[0]} is in {has} but not in {lacks}; both must list the same nodes")
    depot, *further = _depots(sections, demands)
    # The depot comes first, then the customers by number.
    nodes = [depot, *sorted(demands.keys() - {depot, *further}), *further]
    if len(nodes) == 1 + len(further):
        raise UserError(f"all {dimension} nodes are depots; a depot and at least one customer are needed")
    fleet = _fleet(header, sections, [depot, *further])
    capacity = max(kind.capacity for kind in fleet)
    demand = _demands(nodes, demands, capacity, 1 + len(further))
    locs, matrix = _layout(header, sections, metric, nodes, coords)
    limit = amount("DISTANCE", header["DISTANCE"]) if "DISTANCE" in header else np.inf
    fleet = tuple(kind._replace(limit=min(kind.limit, limit)) for kind in fleet)
    windows, services, prizes = (_column(sections, title, nodes) for title in OPTIONAL)
    if services is None and (service := amount("SERVICE_TIME", header.get("SERVICE_TIME", "0"))):
        services = np.full((len(nodes), 1), service)
    usual = usual_rounding((header.get("NAME", ""), path.stem), matrix if metric == "EXPLICIT" else None)
    rounding = usual if windows is None or metric == "EXPLICIT" else "dimacs"
    # Named after the file: NAME inside it is free text, which must not decide where a solution is written.
    return [
        Problem(
            *(path.stem, locs, np.array(demand, np.int64), capacity, rounding, best_known(path), metric, matrix),
            services=None if services is None else services[:, 0],
            windows=windows,
            fleet=() if fleet == (Vehicles(capacity),) else fleet,
            depots=1 + len(further),
            open_routes=_header(header, "TYPE").upper() in OPEN,
            prizes=None if prizes is None else np.where(prizes[:, 0] > 0, prizes[:, 0], np.inf),
        )
    ]


def _column(sections: dict[str, Rows], title: str, nodes: list[int]) -> np.ndarray | None:
    """Return the numbers (N, columns) of an optional section, if it is there."""
    rows = _nodes(sections, title, len(nodes))
    return np.array([[amount(f"{title}: node {n}", word) for word in rows[n]] for n in nodes]) if rows else None


def _fleet(header: Header, sections: dict[str, Rows], depots: list[int]) -> tuple[Vehicles, ...]:
    """Return the kinds of vehicles; where the file does not say how many there are, there are enough."""
    count = whole("VEHICLES", header["VEHICLES"]) if "VEHICLES" in header else None
    if count is not None and not 1 <= count <= 10**6:
        raise UserError(f"VEHICLES is {count}; there must be from 1 to a million")
    columns: dict[str, list[float]] = {}
    if "CAPACITY_SECTION" not in sections:
        _header(header, "CAPACITY")
    for key, what in OF_VEHICLES.items():
        rows = [row[-1] for row in _nodes(sections, f"{key}_SECTION", count or 0, "VEHICLES").values()]
        words = rows or [header[key]] * (count or 1) if rows or key in header else []
        columns |= {what: [amount(key, word) for word in words]} if words else {}
    if bad := [most for most in columns["capacity"] if most != int(most) or not 1 <= most <= MOST_CAPACITY]:
        smaller = "(dividing all demands and the capacity by one number changes nothing)"
        raise UserError(f"CAPACITY is {bad[0]:.9g}; give a whole number from 1 to {MOST_CAPACITY} {smaller}")
    if "depot" not in columns and len(depots) > 1:
        if count is not None:
            raise UserError(f"VEHICLES_DEPOT_SECTION is missing; say where each of the {count} vehicles begins")
        columns = {what: values * len(depots) for what, values in columns.items()} | {"depot": [*depots]}
    for place, node in enumerate(columns.get("depot", [])):
        if node not in depots:
            raise UserError(f"vehicle {place + 1} is at node {node:g}, which is no depot")
        columns["depot"][place] = depots.index(int(node))
    alike = Counter(zip(*columns.values(), strict=True))  # in the order of the file
    found = tuple(
        Vehicles(**dict(zip(columns, each, strict=True)), available=count and many) for each, many in alike.items()
    )
    return tuple(kind._replace(capacity=int(kind.capacity), depot=int(kind.depot)) for kind in found)


def _split(text: str) -> tuple[Header, dict[str, Rows], bool]:
    """Return the `KEY : VALUE` lines, the rows of each section, and whether the file is complete."""
    header: Header = {}
    sections: dict[str, Rows] = {}
    rows: Rows | None = None
    for number, line in enumerate(map(str.strip, text.splitlines()), 1):
        title, where = line.rstrip(": \t").upper(), f"line {number}: {line[:40]!r}"
        key, colon, value = (part.strip() for part in line.partition(":"))
        key = key.upper()
        if not line or line.startswith("#"):
            continue
        if title == "EOF":
            return header, sections, True
        if title in sections or (colon and key in header):
            raise UserError(f"{where} is given a second time; keep one")
        # A title is one word, so that a comment may end in "_section".
        if title.endswith("_SECTION") and title.isidentifier():
            rows = sections[title] = []
        elif colon:
            header[key] = value
            rows = None
        elif rows is not None:
            rows.append((number, line.split()))
        else:
            raise UserError(f"{where} is neither 'KEY : VALUE' nor the title of a section; correct or remove it")
    # Without an end mark, a last row cut in the middle ("22 700" to "22 70") would look whole.
    return header, sections, bool(rows and rows is sections.get("DEPOT_SECTION") and rows[-1][1] == ["-1"])


def _check_kind(header: Header, sections: dict[str, Rows]) -> str:
    """Return the metric, a key of METRICS; raise UserError for a problem of another kind than a CVRP in one of them."""
    # TYPE comes first: in files of other kinds, other sections and keys are no faults.
    if (kind := _header(header, "TYPE")).upper() not in TYPES:
        raise UserError(f"TYPE is {kind[:40]!r}; only {', '.join(TYPES)} can be solved here, give such a file")
    if (metric := _header(header, "EDGE_WEIGHT_TYPE")).upper() not in METRICS:
        wrong = f"EDGE_WEIGHT_TYPE is {metric[:40]!r}"
        raise UserError(f"{wrong}; only {', '.join(METRICS)} are supported, give a file of such a type")
    known = (*SECTIONS, *OPTIONAL, WEIGHTS, *UNREAD_SECTIONS, *(f"{key}_SECTION" for key in OF_VEHICLES))
    unknown = [key for key in header if key not in HEADER_KEYS] + [title for title in sections if title not in known]
    if unknown:
        raise UserError(f"{unknown[0][:40]!r} cannot be solved here; remove it to solve without it")
    return metric.upper()


def _dimension(header: Header, metric: str) -> int:
    if (dimension := whole("DIMENSION", _header(header, "DIMENSION"))) < 2:
        raise UserError(f"DIMENSION is {dimension}; a depot and at least one customer make 2 or more")
    if dimension > MOST_CUSTOMERS + 1 and not METRICS[metric].planar:
        held = f"a matrix of {metric} distances is held for at most {MOST_CUSTOMERS} customers"
        instead = "give a smaller problem or one with coordinates in a plane, as EUC_2D"
        raise UserError(f"DIMENSION is {dimension}; {held}, {instead}")
    return dimension


def _nodes(sections: dict[str, Rows], title: str, count: int, counted: str = "DIMENSION") -> dict[int, list[str]]:
    """Return {number: the other words of its row} of a section, if it is there, after checking its rows."""
    if title not in sections:
        return {}
    rows = sections[title]
    if len(rows) != count:
        what = f"{counted} is {count} but {title} has {len(rows)} rows"
        raise UserError(f"{what}; the file may be cut short, download it again or correct {counted}")
    columns = (SECTIONS | OPTIONAL).get(title, ("number", "value"))
    nodes: dict[int, list[str]] = {}
    for number, words in rows:
        if len(words) != len(columns):
            of = f"{', '.join(columns[:-1])} and {columns[-1]}"
            raise UserError(f"line {number}: {' '.join(words)[:40]!r} in {title}; each row is {of}")
        if (node := whole(f"line {number}: the node number", words[0])) in nodes:
            twice = f"line {number}: node {node} is given a second time in {title}"
            raise UserError(f"{twice}; give each node a number of its own")
        nodes[node] = words[1:]
    return nodes


def _layout(
    header: Header, sections: dict[str, Rows], metric: str, nodes: list[int], coords: dict[int, list[str]]
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return places of `nodes` in a plane (N, 2), and their distances (N, N) unless the places define them."""
    if metric == "EXPLICIT":
        row = np.argsort(np.argsort(nodes))
        matrix = _matrix(header, sections, len(nodes))[np.ix_(row, row)]
    else:
        what = "a coordinate of node {}".format
        locs = np.array([[amount(what(n), word, -MAX_COORDINATE) for word in coords[n]] for n in nodes])
        if METRICS[metric].planar:
            return locs, None
        matrix = METRICS[metric].lengths(locs[:, None], locs)
    return in_a_plane((matrix + matrix.T) / 2), matrix


def _matrix(header: Header, sections: dict[str, Rows], size: int) -> np.ndarray:
    """Return the matrix (N, N) of EDGE_WEIGHT_SECTION, with a zero diagonal."""
    if (layout := _header(header, "EDGE_WEIGHT_FORMAT").upper()) not in LAYOUTS:
        raise UserError(f"EDGE_WEIGHT_FORMAT is {layout[:40]!r}; only {', '.join(LAYOUTS)} are supported")
    rows, columns = LAYOUTS[layout](size)
    words = [(number, word) for number, row in sections[WEIGHTS] for word in row]
    if len(words) != len(rows):
        what = f"{WEIGHTS} holds {len(words)} numbers, but {layout} of DIMENSION {size} has {len(rows)}"
        raise UserError(f"{what}; the file may be cut short, download it again or correct one of them")
    matrix = np.zeros((size, size))
    matrix[rows, columns] = [amount(f"line {number}: a distance", word) for number, word in words]
    np.fill_diagonal(matrix, 0)
    return matrix if layout == "FULL_MATRIX" else matrix + matrix.T


def _depots(sections: dict[str, Rows], nodes: Collection[int]) -> list[int]:
    words = [word for _, row in sections["DEPOT_SECTION"] for word in row]
    if "-1" in words[:-1] or not [word for word in words if word != "-1"]:
        raise UserError(f"DEPOT_SECTION holds {' '.join(words)[:40]!r}; give node numbers of depots, then -1")
    depots = [whole("the depot", word) for word in words if word != "-1"]
    if wrong := [each for each in depots if each not in nodes or depots.count(each) > 1]:
        raise UserError(f"DEPOT_SECTION names node {wrong[0]}, twice or without a row in DEMAND_SECTION")
    return depots


def _demands(nodes: list[int], demands: dict[int, list[str]], capacity: int, depots: int) -> list[int]:
    """Return the demands of `nodes`: the depot, customers, further depots."""
    demand = [whole(f"the demand of node {node}", demands[node][0]) for node in nodes]
    for node, load in zip(nodes, demand, strict=True):
        if load < 0:
            raise UserError(f"the demand of node {node} is {load}; demands must be 0 or more")
        if load > capacity:
            what = f"node {node} asks for {load} but CAPACITY is {capacity}, so no vehicle can serve it"
            raise UserError(f"{what}; correct one of the two")
    for node, load in ((nodes[at], demand[at]) for at in (0, *range(len(nodes) - depots + 1, len(nodes)))):
        if load:
            raise UserError(f"the depot, node {node}, has a demand of {load}; set it to 0")
    return demand


def _header(header: Header, key: str) -> str:
    """Return the value of a required key."""
    if not header.get(key):
        raise UserError(f"{key} is missing; add a line '{key} : ...'")
    return header[key]


def best_known(path: Path) -> float | None:
    """Return the cost in the `.sol` file beside an instance; None without one."""
    solution = path.with_suffix(".sol")
    if not solution.is_file():
        return None
    found = re.findall(r"^cost:?\s+(\S+)\s*$", solution.read_bytes().decode("utf-8", "replace"), re.I | re.M)
    if len(found) != 1 or not NUMBER.fullmatch(found[0]):
        raise UserError(f"{solution.name}: give it one line 'Cost NUMBER', the best known cost; correct or remove it")
    return float(found[0])


def read_routes(path: Path) -> list[list[int]]:
    """Return the routes of a `.sol` file: customers numbered from 1."""
    found = re.findall(r"^route[^:]*:(.*)$", path.read_bytes().decode("utf-8", "replace"), re.I | re.M)
    if not found:
        raise UserError(f"{path}: it must have lines such as 'Route #1: 3 1 2'; correct or remove it")
    return [[whole(f"{path}: a customer", word) for word in line.split()] for line in found]


def solution_text(routes: Sequence[Sequence[int]], cost: float) -> str:
    """Return the text of a `.sol` file, with the cost in the problem's metric."""
    lines = [f"Route #{number}: {' '.join(map(str, route))}\n" for number, route in enumerate(routes, 1)]
    cost = float(cost)
    return "".join(lines) + f"Cost {int(cost) if cost.is_integer() else cost}\n"


def whole(what: str, word: str) -> int:
    """Parse a whole number, or raise UserError."""
    value = float(word) if NUMBER.fullmatch(word) else np.nan
    # Above 2**53 float64 skips whole numbers, and no value here may be near that. Also false for nan and inf.
    if not abs(value) < 2**53 or value != int(value):
        raise UserError(f"{what} is {word[:40]!r}; it must be a whole number")
    return int(value)


def amount(what: str, word: str, least: float = 0) -> float:
    """Parse a length, a time or, down to `least`, a coordinate, or raise UserError."""
    value = float(word) if NUMBER.fullmatch(word) else np.nan
    if not least <= value <= MAX_COORDINATE:  # true for nan as well
        raise UserError(f"{what} is {word[:40]!r}; it must be a number from {least:g} to {MAX_COORDINATE:g}")
    return value
