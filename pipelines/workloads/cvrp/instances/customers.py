"""Customers as people keep them: CSV and XLSX tables and GeoJSON points, and their tours in return.

A table has a row for the depot and one for each customer. Its columns are found by their usual names; the depot is the
row that says so, else the first. Longitudes and latitudes make distances kilometres on the sphere. Opening hours are
times of day, as 8:30, in minutes, or numbers in any unit; those of the depot hold for routes.
"""

import json
import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from common import sheets
from common.browser import FOLDER
from common.disk.files import write_text
from common.errors import UserError
from common.foreign_text import printable, to_csv
from models.routing.edge_weight_types import great_circle
from models.routing.problems import MAX_COORDINATE, MOST_CAPACITY
from pipelines.workloads.cvrp.instances.vrp_files import NUMBER

# {what a column holds: its usual names}: those of the page, which reads the same tables.
_columns_of_page = re.search(r"COLUMNS \} = (\{.*?\});", (FOLDER / "routes.js").read_text("utf-8"), re.S)
assert _columns_of_page
USUAL: dict[str, list[str]] = json.loads(_columns_of_page[1])
MARKS = USUAL.pop("marks")  # of the depot, in the column of that name
CLOCK, DASH, HOUR, OTHER_UNIT = (re.compile(form) for form in USUAL.pop("forms"))
MINUTES = re.compile(r"(?!0\d)\d+\.?\d*|")  # 0830 is a time of day
WRITTEN = (".routes.csv", ".routes.geojson")  # endings of what `write_routes` writes
TITLES, HEADED = 10, {*USUAL["lat"], *USUAL["y"]}  # rows searched for the header, and columns that tell it
TIMES = dict.fromkeys(("open", "close"), "a time, such as 8:30") | {"service": "minutes, such as 15"}  # what to type
WIDEST = 10  # degrees that columns x and y span at most to be taken for longitude and latitude
FAR = 10  # degrees; a table with a place farther from 0, 0 has none there

Row = Mapping[str, object]  # cells by what they hold
Rows = list[tuple[int, list[object]]]  # (number, cells) of each row that is not blank, the header first


@dataclass(frozen=True, eq=False)
class Customers:
    """The depot, the customers and then the further depots of a table."""

    rows: list[int]  # N numbers of rows, as a spreadsheet shows them
    names: list[str]  # N, "" without a column for them
    places: np.ndarray  # (N, 2) float64, x and y or longitude and latitude
    demands: list[float]  # N, 0 at depots
    degrees: bool
    customers: int
    others: dict[str, object]  # fields of an input that the table has columns for
    found: str  # what was read from where, in a line
    clock: bool = False  # opening hours are times of day

    def as_input(self) -> dict[str, object]:
        """Return the fields of an input of the models; the capacity is missing where the table has none."""
        (depot, *places), last = self.places.tolist(), self.customers
        own = {"customers": places[:last], "depots": places[last:], "demands": self.demands[1 : last + 1]}
        return {"depot": depot, **own, **self.others, "degrees": self.degrees}

    def customers_by_row(self) -> dict[str, str]:
        """Return {"customer 1": "row 3 (Bakery)"} and so on."""
        rows = (f"row {row} ({printable(name, 60)})" for row, name in zip(self.rows, self.names, strict=True))
        return {f"customer {number}": row.removesuffix(" ()") for number, row in enumerate(rows)}


def completed(given: Mapping[str, object]) -> Mapping[str, object]:
    """Return an input with demands and capacities in whole numbers; raise UserError if it has no capacity."""
    demands, vehicles = given.get("demands"), given.get("vehicles") or []
    if given.get("capacity") is None and demands and not vehicles:
        raise UserError("there is no capacity; give capacity=100 (in evaluations evaluation.capacity=100) or a column")
    kinds = vehicles if isinstance(vehicles, list | tuple) and all(isinstance(each, dict) for each in vehicles) else []
    bounds = [each["capacity"] for each in (given, *kinds) if each.get("capacity") is not None]
    asked = [*demands, *bounds] if isinstance(demands, list | tuple) and bounds else []
    amounts = [each for each in asked if isinstance(each, int | float) and 0 <= each <= MOST_CAPACITY]
    if not amounts or len(amounts) < len(asked) or any(isinstance(each, bool) for each in amounts):
        return given  # the fields say what is wrong
    whole = dict(zip(amounts, whole_numbers(amounts), strict=True))
    if (large := max(amounts)) > max(bounds):
        who = f"customer {amounts.index(large) + 1}"
        raise UserError(f"{who} asks for {large:g}, more than the capacity of {max(bounds)}; split the customer")

    def carrying(of: Mapping[str, object]) -> dict[str, object]:
        return {**of, "capacity": whole[own]} if isinstance(own := of.get("capacity"), int | float) else dict(of)

    found = {**carrying(given), "demands": [whole[each] for each in amounts[: len(amounts) - len(bounds)]]}
    return {**found, "vehicles": [carrying(each) for each in kinds]} if kinds else found


def whole_numbers(amounts: Sequence[float]) -> list[int]:
    """Return amounts times the least power of ten that makes all of them whole, such as [25, 1000] for [2.5, 100].

    Raises UserError if one of them is above MOST_CAPACITY.
    """
    exact = [Decimal(repr(float(amount))) for amount in amounts]
    digits = max(0, *(-int(each.normalize().as_tuple().exponent) for each in exact))
    whole = [int(each.scaleb(digits)) for each in exact]
    if max(whole) > MOST_CAPACITY:
        fine = f"demands and capacity have {digits} decimals and go up to {max(amounts):g}"
        raise UserError(f"{fine}; round them so that, written without the point, none is above {MOST_CAPACITY}")
    return whole


def _read_csv(path: Path) -> Rows:
    """Read text divided by commas, semicolons, tabs or bars, whichever the header has most of."""
    rows, divider = sheets.cells(path, lines=False)
    if divider == "," or not any(re.match(r"[-+]?\d*,\d+\D*$", cell) for _, row in rows for cell in row):
        return [(number, [*row]) for number, row in rows]
    if either := [(n, cell) for n, row in rows for cell in row if re.fullmatch(r"[-+]?\d{1,3}(\.\d{3})+", cell)]:
        number, cell = either[0]
        beside = "as other cells have decimal commas; write numbers without thousands"
        raise UserError(f"{path}: row {number}: {cell} may be {cell.replace('.', '')} or {cell}, {beside}")
    return [(number, [re.sub(r"^([-+]?\d*),(\d+)$", r"\1.\2", cell) for cell in row]) for number, row in rows]


def _read_points(path: Path) -> Rows:
    """Read points as rows, numbered from 1 as the features are, with columns lon, lat and their properties."""
    try:
        found = json.loads(path.read_bytes().decode("utf-8-sig"))
        # Lines are roads or tours; of a place that is an area, its row says so.
        features = [each for each in found["features"] if not each["geometry"]["type"].endswith("LineString")]
        shapes = [each["geometry"] for each in features]
        places = [each["coordinates"][:2] if each["type"] == "Point" else [each["type"]] * 2 for each in shapes]
        about = [each.get("properties") or {} for each in features]
        columns = [key for key in dict.fromkeys(key for each in about for key in each) if key not in ("lon", "lat")]
        rows = [[lon, lat, *(each.get(key) for key in columns)] for (lon, lat), each in zip(places, about, strict=True)]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f"{path}: not a FeatureCollection of points (GeoJSON); export the places as points") from error
    return [(0, ["lon", "lat", *columns]), *enumerate(rows, 1)]


TABLES = {".csv": _read_csv, ".tsv": _read_csv, ".geojson": _read_points, ".xlsx": sheets.rows}


def read_table(path: Path) -> Customers:
    """Return the customers of a table; raise UserError, in one line, for one that cannot be used."""
    if path.name.lower().endswith(WRITTEN):
        raise UserError(f"{path}: these are tours that were written here; give the table of customers")
    table = TABLES[path.suffix.lower()](path) or [(0, [])]
    heads = (at for at, (_, row) in enumerate(table[:TITLES]) if HEADED & {_plain(str(cell)) for cell in row})
    (_, header), *body = table[next(heads, 0) :]
    columns = _columns(path, [str(cell if cell is not None else "").strip() for cell in header], body)
    if len(body) < 2:
        raise UserError(f"{path}: has {len(body)} rows below its header; give the depot one, and each customer")
    rows = {number: {what: row[at] if at < len(row) else None for what, at in columns.items()} for number, row in body}
    (depot, *further), marked = _depots(rows)
    # The depot comes first, further ones last.
    rows = {row: rows[row] for row in (depot, *(each for each in rows if each not in (depot, *further)), *further)}
    axes = ("lon", "lat") if "lon" in columns else ("x", "y")
    places = np.array([[_number(path, row, axis, cells[axis]) for axis in axes] for row, cells in rows.items()])
    degrees = axes[0] == "lon" or _looks_like_degrees(places)
    if axes[0] == "lon":
        _check_map(path, rows, places)
    for row in (depot, *further):
        if load := _number(path, row, "demand", rows[row]["demand"] or 0, 0):
            why = "as it says" if marked else "being the first"
            own = "give your own place a first row with demand 0, or add a column depot with 1 in its row"
            raise UserError(f"{path}: row {row} is the depot, {why}, but its demand is {load:g}; {own}")
    served = {row: cells for row, cells in rows.items() if row not in (depot, *further)}
    loads = [_number(path, row, "demand", cells["demand"], 0) for row, cells in served.items()]
    names = [str(cells["name"]).strip() if cells.get("name") is not None else "" for cells in rows.values()]
    called = [f"{what} from {header[at]}" for what, at in columns.items() if str(header[at]).strip().lower() != what]
    where = f"row {depot}{f' ({names[0]})' if names[0] else ''}{'' if marked else ', the first'}"
    several = "further depots in rows" if further[1:] else "a further depot in row"
    more = [f"{several} {' and '.join(map(str, further))}"] if further else []
    found = "; ".join([f"{len(served)} customers, depot in {where}", *more, *called])
    known = [(name, *place) for name, place in zip(names, places.tolist(), strict=True)][: len(served) + 1]
    first = {each: at for at, each in reversed(list(enumerate(known)))}
    if twice := [at for at, each in enumerate(known) if each[0] and first[each] < at]:
        some = ", ".join(f"row {list(rows)[at]} ({names[at]})" for at in twice[:3])
        found += f"; twice by name and place, both are served: {some}{', ...' if len(twice) > 3 else ''}"
    if unused := [str(name) for at, name in enumerate(header) if name and at not in columns.values()]:
        found += f"; not used: {', '.join(unused)}"
    if degrees:
        by = "" if axes[0] == "lon" else " by the range of x and y"
        found += f"; longitude and latitude{by}: costs are in km{' unless degrees=false' if by else ''}"
    others: dict[str, object] = {"name": path.stem}
    if {"open", "close", "hours"} & columns.keys():
        hours, *windows = (_hours(path, row, cells) for row, cells in rows.items())
        untold = [] if "service" in columns else ["no time for service without service_times=5 or the like"]
        untold += ["60 km/h without speed=40 or the like"] if degrees else []
        found += f"; opening hours are kept: {', '.join(untold)}".removesuffix(": ")
        others |= {"hours": hours, "windows": windows[: len(served)], "depot_hours": windows[len(served) :]}
    if "service" in columns:
        others["service_times"] = [_number(path, r, "service", cells["service"] or 0, 0) for r, cells in served.items()]
    if "prize" in columns:  # an empty cell: the customer must be served
        prizes = ((row, cells["prize"]) for row, cells in served.items())
        others["prizes"] = [_number(path, row, "prize", cell, 0) if _text(cell) else None for row, cell in prizes]
    if (capacity := _capacity(path, rows)) is not None:
        others["capacity"] = capacity
    demands = [0.0, *loads, *(0.0 for _ in further)]
    clock = any(not MINUTES.fullmatch(_text(row.get(w))) for row in rows.values() for w in ("open", "close", "hours"))
    return Customers(list(rows), names, places, demands, degrees, len(served), others, printable(found, 600), clock)


def _columns(path: Path, header: Sequence[str], body: Sequence[tuple[int, Sequence[object]]]) -> dict[str, int]:
    """Return {what a column holds: its position} of a table."""
    plain = {_plain(column): at for at, column in reversed(list(enumerate(header)))}
    guesses = ((what, next((plain[name] for name in names if name in plain), None)) for what, names in USUAL.items())
    found = {what: at for what, at in guesses if at is not None}
    left = [at for at, column in enumerate(header) if column and at not in found.values()]
    if len(left) == 1 and all(NUMBER.fullmatch(_text(row[left[0]]) or "0") for _, row in body if left[0] < len(row)):
        found.setdefault("demand", left[0])  # the only column of another name
    if other := [header[at] for what, at in found.items() if what in TIMES and OTHER_UNIT.search(header[at].lower())]:
        raise UserError(f"{path}: the column {printable(other[0], 40)} is not in minutes; give minutes, without a unit")
    pairs = [pair for pair in (("lon", "lat"), ("x", "y")) if found.keys() >= set(pair)]
    if not pairs or "demand" not in found:
        lacking = "demand (or quantity, weight)" if pairs else "lon and lat (or longitude and latitude, or x and y)"
        has = ", ".join(printable(column, 40) for column in header if column) or "none"
        way = "name them in the first row, as in name,lon,lat,demand"
        raise UserError(f"{path}: there is no column {lacking} among {has}; {way}")
    return {what: at for what, at in found.items() if what not in ("lon", "lat", "x", "y") or what in pairs[0]}


def _plain(column: str) -> str:
    """Return a column's name without case, accents, spaces, signs and all from a bracket on, such as a unit."""
    bare = unicodedata.normalize("NFKD", re.sub(r"[(\[].*", "", column)).casefold()
    return re.sub(r"[^0-9a-z]", "", bare)


def _depots(rows: Mapping[int, Row]) -> tuple[list[int], bool]:
    """Return the rows of depots, and whether they say so: in a column depot or type, or by the name depot."""
    marked = [row for row, cells in rows.items() if _text(cells.get("depot")) in MARKS]
    marked = marked or [row for row, cells in rows.items() if _text(cells.get("name")) == "depot"]
    return marked or list(rows)[:1], bool(marked)


def _text(cell: object) -> str:
    return "" if cell is None else str(cell).strip().casefold()


def _number(path: Path, row: int, column: str, cell: object, least: float = -MAX_COORDINATE) -> float:
    """Return a cell as a number, of minutes where it is a time; or raise UserError."""
    clock = CLOCK.fullmatch(_text(cell)) if column in TIMES else None
    try:
        hour = int(clock[1]) % (12 if clock[3] else 100) + 12 * (clock[3] == "p") if clock else 0
        value = 60.0 * hour + int(clock[2] or 0) if clock else float(_text(cell))
    except ValueError:
        value = math.nan
    if not least <= value <= (480 if clock and column == "service" else MAX_COORDINATE):  # true for nan; 15:00 is mm:ss
        given = "is empty" if cell is None or cell == "" else f"is {printable(repr(cell), 40)}"
        number = "a number, such as 52.5" if least else "a number, such as 7, or 0 for none"
        raise UserError(f"{path}: row {row}: {column} {given}; type {TIMES.get(column, number)}")
    return value


def _hours(path: Path, row: int, cells: Row) -> tuple[float, float]:
    """Return when a row opens and closes; an empty cell limits nothing."""
    texts = [_text(cells.get(what)) for what in ("open", "close")]
    if span := _text(cells.get("hours")):  # 8:00-17:30, or 8.00 - 17 Uhr
        texts = [HOUR.sub(r"\1\2\4:\3\5", each) for each in DASH.split(span, maxsplit=1)]
        clear = len(texts) == 2 and all(CLOCK.fullmatch(each) for each in texts if each)  # 1000 would mean 10:00
        if not clear or ("m" in texts[1] and "m" not in texts[0]):  # 1-3pm may open at one in the night
            raise UserError(f"{path}: row {row}: hours are {printable(repr(span), 40)}; type them as 8:00-17:30")
    opens = _number(path, row, "open", texts[0]) if texts[0] else 0.0
    closes = _number(path, row, "close", texts[1]) if texts[1] else float(MAX_COORDINATE)
    if not 0 <= opens <= closes:
        raise UserError(f"{path}: row {row}: opens at {opens:g} and closes at {closes:g}; correct one of them")
    return opens, closes


def _capacity(path: Path, rows: Mapping[int, Row]) -> float | None:
    """Return the value of the column capacity, which rows may repeat or leave empty; None if all do."""
    given = {row: cells["capacity"] for row, cells in rows.items() if cells.get("capacity") not in (None, "")}
    values = {row: _number(path, row, "capacity", cell) for row, cell in given.items()}
    (first, most), *others = values.items() or [(0, None)]
    for row, value in others:
        if value != most:
            what = f"capacity is {most:g} in row {first} and {value:g} in row {row}"
            raise UserError(f"{path}: {what}; all vehicles are alike here, so type one number")
    return most


def _check_map(path: Path, rows: Mapping[int, Row], places: np.ndarray) -> None:
    """Raise UserError for a place at 0, 0 that others are far from, and for opening hours that are hardly minutes."""
    if np.abs(places).max() > FAR and not (known := places.any(1)).all():
        raise UserError(f"{path}: row {list(rows)[known.argmin()]} is at 0, 0, as no address is; type its lon and lat")
    given = [text for cells in rows.values() for what in ("open", "close") if (text := _text(cells.get(what)))]
    numbers = [float(text) for text in given if MINUTES.fullmatch(text)]
    if numbers and (len(numbers) < len(given) or not 24 < max(numbers) <= 1440):
        raise UserError(f"{path}: opening hours such as {max(numbers):g} would mean minutes; type times, such as 8:30")


def _looks_like_degrees(places: np.ndarray) -> bool:
    """Return whether x and y are longitude and latitude: in range, near each other, fine, off the unit square."""
    low, high = places.min(0), places.max(0)
    within = (np.abs(places) <= (180, 90)).all() and (high - low <= WIDEST).all()
    fine = (np.abs(places * 100 - np.rint(places * 100)) > 1e-6).any(1).mean() > 0.5  # three decimals or more
    return bool(within and fine and (low.min() < 0 or high.max() > 1))


def write_routes(path: Path, answer: Mapping[str, Any], run: str) -> list[Path]:
    """Write tours beside the table: NAME.RUN.routes.csv, and .routes.geojson of degrees; return the paths.

    Where there are tables of one NAME with several endings, each has its ending before RUN.
    """
    table, degrees = read_table(path), "unit" in answer
    written_as = (lambda at: "{}:{:02}".format(*divmod(round(at), 60))) if table.clock else "{:.15g}".format
    times = [list(map(written_as, each)) for each in answer.get("arrivals", ())]  # 8:52, or a number, as hours are
    axes = ("lon", "lat") if degrees else ("x", "y")
    back = 0 if answer.get("open_routes") else 1
    depots = [each and table.customers + each for each in answer.get("depots", [0] * len(answer["routes"]))]
    routes = [[depot, *route, *[depot] * back] for depot, route in zip(depots, answer["routes"], strict=True)]
    stops = [
        (
            *(number, stop, table.rows[node], table.names[node], *table.places[node].tolist()),
            *(f"{table.demands[node]:.15g}", *([times[number - 1][stop]] if times else [])),
        )
        for number, route in enumerate(routes, 1)
        for stop, node in enumerate(route)
    ]
    others = [path.with_suffix(ending) for ending in TABLES if ending != path.suffix.lower()]
    name = path.name if any(map(Path.exists, others)) else path.stem
    written = [path.with_name(f"{name}.{run}{ending}") for ending in (WRITTEN if degrees else WRITTEN[:1])]
    write_text(written[0], to_csv(("route", "stop", "row", "name", *axes, "demand", *["time"] * bool(times)), stops))
    for file in written[1:]:
        write_text(file, json.dumps(_geojson(table, routes, times), ensure_ascii=False) + "\n")
    return written


def _geojson(table: Customers, routes: Sequence[Sequence[int]], times: Sequence[Sequence[str]]) -> dict[str, object]:
    """Return the tours as lines and the places as points (RFC 7946)."""
    shapes: list[dict[str, object]] = []
    visits: dict[int, dict[str, object]] = {}

    def drawn(kind: str, coordinates: list[object], **about: object) -> None:
        shapes.append({"type": "Feature", "properties": about, "geometry": {"type": kind, "coordinates": coordinates}})

    for number, route in enumerate(routes, 1):
        path, when = table.places[route], times[number - 1] if times else []
        for stop, node in enumerate(route):
            visits[node] = {"route": number, "stop": stop, **({"time": when[stop]} if when else {})}
        load = round(sum(table.demands[node] for node in route), 6)
        km = round(float(great_circle(path[1:], path[:-1]).sum()), 3)
        hours = {"leaves": when[0], "back" if route[0] == route[-1] else "ends": when[-1]} if when else {}
        drawn("LineString", path.tolist(), route=number, stops=len({*route}) - 1, load=load, km=km, **hours)
    for node, place in enumerate(table.places.tolist()):
        visit = visits.get(node, {}) if 0 < node <= table.customers else {"depot": True}
        drawn("Point", place, name=table.names[node], row=table.rows[node], demand=table.demands[node], **visit)
    return {"type": "FeatureCollection", "features": shapes}
