"""The rows of CSV and XLSX files and of GeoJSON points, as cells under a header."""

import json
import re
from collections.abc import Callable
from pathlib import Path

from common import sheets
from common.errors import UserError

Rows = list[tuple[int, list[object]]]  # (number, cells) of each row that is not blank, the header first


def _csv(path: Path) -> Rows:
    """Read text divided by commas, semicolons, tabs or bars, whichever the header has most of."""
    rows, divider = sheets.cells(path, lines=False)
    decimal = re.compile(r"^([-+]?\d*),(\d+)$")  # a comma that does not divide may stand for a decimal point
    if divider == "," or not any(re.match(r"[-+]?\d*,\d+\D*$", cell) for _, row in rows for cell in row):
        return [(number, [*row]) for number, row in rows]
    if either := [(n, cell) for n, row in rows for cell in row if re.fullmatch(r"[-+]?\d{1,3}(\.\d{3})+", cell)]:
        number, cell = either[0]
        beside = "as other cells have decimal commas; write numbers without thousands"
        raise UserError(f"{path}: row {number}: {cell} may be {cell.replace('.', '')} or {cell}, {beside}")
    return [(number, [decimal.sub(r"\1.\2", cell) for cell in row]) for number, row in rows]


def _geojson(path: Path) -> Rows:
    """Read points as rows, numbered from 1 as the features are, their properties under lon and lat as columns."""
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


TABLES: dict[str, Callable[[Path], Rows]] = {".csv": _csv, ".geojson": _geojson, ".xlsx": sheets.rows}
