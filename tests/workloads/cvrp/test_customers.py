"""Customers as people keep them: CSV, XLSX and GeoJSON, in degrees or in a plane, and their tours in return."""

import contextlib
import csv
import json
import math
import subprocess
import sys
from pathlib import Path

import openpyxl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common import browser, sheets
from common.config import checked
from common.errors import UserError
from models import shipped
from models.routing import fleet, native
from models.routing.edge_weight_types import great_circle, local_plane
from models.routing.fleet import plan
from models.routing.inputs import RoutingInput, problem_of
from models.routing.problems import cost_of
from pipelines.answers import command_inputs
from pipelines.workloads.cvrp.input_files import INPUTS
from pipelines.workloads.cvrp.instances.customers import USUAL, completed, read_table, whole_numbers, write_routes
from pipelines.workloads.cvrp.instances.files import read
from tests.stages import stage

BERLIN = """name,lat,lng,quantity
Yard,52.52,13.405,
Spandau,52.536,13.199,4
Potsdam,52.3906,13.0645,7
Bernau,52.679,13.587,2.5
Koepenick,52.445,13.574,3
Tegel,52.588,13.287,5
Falkensee,52.56,13.092,6
Oranienburg,52.754,13.236,4
"""


def written(folder: Path, text: str | bytes, name: str = "customers.csv") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def asked(path: Path, **fields: object) -> RoutingInput:
    """Return the input that a command makes of a table and of words beside it."""
    (found,) = command_inputs.given([path], fields, INPUTS, None)
    assert found.input is not None, found.error
    return checked(INPUTS.input, INPUTS.completed(found.input), "an input")


def refusal(path: Path, **fields: object) -> str:
    (found,) = command_inputs.given([path], fields, INPUTS, None)
    if found.input is None:
        return found.error.removeprefix(f"{path}: ")
    with pytest.raises(UserError) as caught:
        checked(INPUTS.input, INPUTS.completed(found.input), "an input")
    return str(caught.value)


def haversine(one: list[float], two: list[float]) -> float:
    """Return kilometres between two places by the textbook's formula, one pair at a time."""
    (a, b), (c, d) = ((math.radians(x) for x in place) for place in (one, two))
    return (
        2
        * 6371.0088
        * math.asin(math.sqrt(math.sin((d - b) / 2) ** 2 + math.cos(b) * math.cos(d) * math.sin((c - a) / 2) ** 2))
    )


def test_degrees_are_measured_on_the_sphere_and_not_taken_for_a_plane(tmp_path):
    path = written(tmp_path, BERLIN)
    table, given = read_table(path), asked(path, capacity=15)
    assert given.degrees
    problem = problem_of(given)
    routes = plan(problem, rounds=500).routes
    legs = [leg for route in routes for leg in zip((0, *route), (*route, 0), strict=True)]
    kilometres = sum(haversine(table.places[a].tolist(), table.places[b].tolist()) for a, b in legs)
    assert cost_of(problem, routes) == pytest.approx(kilometres, rel=1e-9)
    # A degree of longitude taken for as long as one of latitude gives other, longer tours.
    plane = problem_of(asked(path, capacity=15, degrees=False))
    assert cost_of(problem, plan(plane, rounds=500).routes) > 1.01 * kilometres


@given(st.floats(-179, 179), st.floats(-70, 70), st.floats(-0.5, 0.5), st.floats(-0.5, 0.5))
def test_the_local_plane_keeps_distances_of_a_region(lon, lat, east, north):
    import numpy as np

    places = np.array([[lon, lat], [lon + east, lat + north], [lon + 0.4, lat - 0.3]])
    plane = local_plane(places)
    for one, two in ((0, 1), (1, 2), (0, 2)):
        true = float(great_circle(places[one], places[two]))
        assert true == pytest.approx(haversine(places[one].tolist(), places[two].tolist()), rel=1e-9, abs=1e-6)
        assert float(np.hypot(*(plane[one] - plane[two]))) == pytest.approx(true, rel=0.03, abs=1e-3)


def test_the_date_line_divides_nothing():
    import numpy as np

    east, west = local_plane(np.array([[179.9, -17.0], [-179.9, -17.0]]))
    assert float(np.hypot(*(east - west))) == pytest.approx(
        float(great_circle(*np.array([[179.9, -17.0], [-179.9, -17.0]]))), rel=1e-3
    )


def as_xlsx(folder: Path, text: str) -> Path:
    book = openpyxl.Workbook()
    for row in csv.reader(text.splitlines()):
        book.active.append([float(cell) if cell.replace(".", "", 1).isdigit() else cell or None for cell in row])
    book.save(folder / "customers.xlsx")
    return folder / "customers.xlsx"


def as_geojson(folder: Path, text: str) -> Path:
    features = [
        {
            "type": "Feature",
            "geometry": {"type": "Point", "coordinates": [float(row.pop("lng")), float(row.pop("lat"))]},
            "properties": {key: value for key, value in row.items() if value},
        }
        for row in csv.DictReader(text.splitlines())
    ]
    return written(folder, json.dumps({"type": "FeatureCollection", "features": features}), "customers.geojson")


@pytest.mark.parametrize(
    "other",
    [
        as_xlsx,
        as_geojson,
        lambda folder, text: written(folder, text.replace(".", "_").replace(",", ";").replace("_", ","), "german.csv"),
        lambda folder, text: written(folder, text.replace(",", "\t").encode("utf-16"), "unicode.csv"),
        lambda folder, text: written(folder, "\ufeff\n" + text.replace("\n", "\r\n\r\n"), "windows.csv"),
        lambda folder, text: written(
            folder, text.replace("name,lat,lng,quantity", "Kunde,Breitengrad,Längengrad,Gewicht (kg)"), "a.csv"
        ),
    ],
)
def test_every_kind_of_table_gives_the_same_problem(tmp_path, other):
    one, two = asked(written(tmp_path, BERLIN), capacity=15), asked(other(tmp_path, BERLIN), capacity=15)
    assert one.model_dump(exclude={"name"}) == two.model_dump(exclude={"name"})
    assert (one.demands[2], one.capacity) == (25, 150)  # tenths, as the models take whole numbers


def test_a_comma_in_a_name_is_no_decimal_point(tmp_path):
    text = BERLIN.replace(".", "_").replace(",", ";").replace("_", ",").replace("Spandau", "Spandau, 2 West")
    path = written(tmp_path, f"sep=;\n{text}".replace("Spandau, 2 West", "7,5 t"), "german.csv")
    assert "7,5 t" in read_table(path).names
    path = written(tmp_path, text, "german.csv")
    table, _ = write_routes(path, {"routes": [[2, 1], [3, 4, 5, 6, 7]], "unit": "km"}, "model")
    assert [row["name"] for row in csv.DictReader(table.read_text().splitlines())][2] == "Spandau, 2 West"


def test_a_decimal_comma_before_a_unit_shows_how_numbers_are_written(tmp_path):
    text = "name;x;y;demand;note\nA;1;2;;\nB;3;4;1.200;7,5 t\nC;5;6;2.500;3,5 t truck\n"
    with pytest.raises(UserError, match=r"1.200 may be 1200 or 1.200"):
        read_table(written(tmp_path, text, "german.csv"))


def test_the_depot_is_the_marked_row_else_the_one_of_that_name_else_the_first(tmp_path):
    rows = ["A,1,2,3,", "B,5,6,0,{}", "C,7,8,9,"]
    for mark, depot in (("1", (5, 6)), ("depot", (5, 6)), ("yes", (5, 6))):
        text = "name,x,y,demand,depot\n" + "\n".join(rows).format(mark)
        assert asked(written(tmp_path, text), capacity=10).depot == depot
    named = "name,x,y,demand\nA,1,2,3\nDepot,5,6,\nC,7,8,9\n"
    assert asked(written(tmp_path, named), capacity=10).depot == (5, 6)
    assert asked(
        written(tmp_path, named.replace("Depot", "B").replace("2,3", "2,0").replace("6,", "6,1")), capacity=10
    ).depot == (1, 2)


@pytest.mark.parametrize(
    ("places", "degrees"),
    [
        (["13.4050,52.5200", "13.1990,52.5361"], True),
        (["0.3141,0.5926", "0.5358,0.9793"], False),  # the unit square
        (["13,52", "14,53"], False),  # a grid
        (["13.405,52.52", "80.123,12.345"], False),  # farther apart than tours go
        (["13405.123,52520.456", "13199.9,52536.1"], False),
    ],
)
def test_x_and_y_are_degrees_only_by_their_range(tmp_path, places, degrees):
    path = written(tmp_path, f"x,y,demand\n{places[0]},0\n{places[1]},1\n")
    assert asked(path, capacity=1).degrees == degrees
    assert ("longitude and latitude by the range of x and y" in read_table(path).found) == degrees
    assert not asked(path, capacity=1, degrees=False).degrees


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "lng",
            "east-west",
            "there is no column lon and lat (or longitude and latitude, or x and y) among name, lat, east-west",
        ),
        ("13.0645", "13'0645", 'row 4: lon is "13\'0645"; type a number, such as 52.5'),
        ("13.0645", "", "row 4: lon is empty; type a number"),
        (
            "52.3906",
            "152.39",
            "an input: customer 2 is at (13.0645, 152.39), which is no longitude (-180 to 180) and latitude",
        ),
        ("13.0645,7", "13.0645,", "row 4: demand is empty; type a number, such as 7, or 0 for none"),
        ("13.0645,7", "13.0645,-7", "row 4: demand is '-7'; type a number, such as 7, or 0"),
        ("13.0645,7", "13.0645,7.25e9", "row 4: demand is '7.25e9'; type a number"),
        (
            "13.405,",
            "13.405,9",
            "row 2 is the depot, being the first, but its demand is 9; give your own place a first row",
        ),
        ("Spandau,52.536,13.199,4\nPotsdam", "Depot,52.536,13.199,4\ndepot", "row 3 is the depot, as it says, but its"),
        ("13.0645,7", "13.0645,16", "customer 2 asks for 16, more than the capacity of 15; split the customer"),
        ("13.587,2.5", "13.587,2.12345678", "demands and capacity have 8 decimals and go up to 15; round them"),
    ],
)
def test_errors_name_column_row_and_what_to_type(tmp_path, old, new, said):
    assert old in BERLIN
    assert refusal(written(tmp_path, BERLIN.replace(old, new)), capacity=15).startswith(said)


def test_the_only_column_of_an_unusual_name_is_the_demand(tmp_path):
    found = read_table(written(tmp_path, "name,lat,lon,crates\nbakery,52.5,13.4,0\na,52.6,13.5,7\nb,52.4,13.3,9\n"))
    assert found.demands == [0, 7, 9]
    assert "demand from crates" in found.found
    two = written(tmp_path, "lat,lon,crates,floor\n52.5,13.4,0,1\n52.6,13.5,7,2\n52.4,13.3,9,3\n", "two.csv")
    with pytest.raises(UserError, match=r"no column demand .* among lat, lon, crates, floor"):
        read_table(two)


def test_a_depot_of_zeros_is_a_row_of_a_workbook_whose_hidden_sheets_do_not_count(tmp_path):
    book = openpyxl.Workbook()
    for row in (["x", "y", "demand"], [0, 0, 0], [3, 4, 2], [5, 1, 3]):
        book.active.append(row)
    book.save(tmp_path / "customers.xlsx")
    assert read_table(tmp_path / "customers.xlsx").demands == [0, 2, 3]
    book.create_sheet("codes", 0).append(["what", "lists", "offer"])
    book["codes"].sheet_state = "hidden"
    book.save(tmp_path / "hidden.xlsx")
    assert read_table(tmp_path / "hidden.xlsx").demands == [0, 2, 3]


def test_a_workbook_that_is_damaged_anywhere_is_refused(tmp_path):
    book = openpyxl.Workbook()
    for row in (["x", "y", "demand"], *([number, 2 * number, 1] for number in range(40))):
        book.active.append(row)
    book.save(tmp_path / "whole.xlsx")
    whole = (tmp_path / "whole.xlsx").read_bytes()
    for place in range(len(whole) // 3, len(whole), len(whole) // 60):
        path = written(tmp_path, whole[:place] + bytes([whole[place] ^ 16]) + whole[place + 1 :], "customers.xlsx")
        with contextlib.suppress(UserError):  # what is of no importance may be damaged
            sheets.rows(path)


def test_unusable_files_are_named(tmp_path):
    assert (
        refusal(written(tmp_path, "name,x,y,demand\nA,1,2,3\n"))
        == "has 1 rows below its header; give the depot one, and each customer"
    )
    assert refusal(written(tmp_path, "")).startswith("there is no column lon and lat")
    assert refusal(written(tmp_path, "no zip", "a.xlsx")).startswith("not an .xlsx file, or damaged (BadZipFile)")
    assert refusal(written(tmp_path, "{}", "a.geojson")).startswith("not a FeatureCollection of points")
    assert "there is no capacity; give capacity=100 (in evaluations evaluation.capacity=100) or" in refusal(
        written(tmp_path, BERLIN)
    )


def test_without_openpyxl_the_extra_is_named(tmp_path, monkeypatch):
    path = as_xlsx(tmp_path, BERLIN)
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    assert refusal(path) == "needs openpyxl (pip install openpyxl); or save the sheet as CSV"


def test_a_capacity_is_a_column_and_a_word_overrides_it(tmp_path):
    text = "x,y,demand,capacity\n1,2,0,20\n3,4,5,\n5,6,7,20\n"
    path = written(tmp_path, text)
    assert asked(path).capacity == 20
    assert asked(path, capacity=30).capacity == 30
    ((problem,),) = read(path).values()
    assert problem.capacity == 20
    assert read(path, capacity=30)["customers"][0].capacity == 30
    assert refusal(written(tmp_path, text.replace("7,20", "7,21"))).startswith(
        "capacity is 20 in row 2 and 21 in row 4; all"
    )
    with pytest.raises(
        UserError, match=r"customers.csv: there is no capacity; give .*in evaluations evaluation.capacity=100"
    ):
        read(written(tmp_path, "x,y,demand\n1,2,0\n3,4,5\n"))
    with pytest.raises(UserError, match=r"customers.csv: customer 1 asks for 5, more than the capacity of 4"):
        read(tmp_path / "customers.csv", capacity=4)


def test_the_hours_of_the_depot_are_a_word_beside_tables(tmp_path):
    """They were an input of their own, of which all else was said to be missing."""
    path = written(tmp_path, BERLIN)
    (found,) = command_inputs.given([path], {"hours": [480, 1020], "capacity": 15}, INPUTS, None)
    assert RoutingInput.model_validate(completed(found.input)).hours == (480, 1020)


MANY = """name,lon,lat,parcels,depot,open,close,prize
north,13.40,52.60,,1,7:00,12:00,
Anna,13.41,52.59,1.5,,,,
Bert,13.39,52.41,1,,,,7.5
south,13.40,52.40,,1,8:00,18:00,
"""


@pytest.mark.skipif(native.unavailable() is not None, reason="needs a C++ compiler")
def test_depots_with_hours_of_their_own_prizes_and_kinds_of_vehicles(tmp_path):
    path = written(tmp_path, MANY)
    vans = [{"capacity": 2.5, "count": 1}, {"capacity": 10, "depot": 1, "fixed_cost": 3}]
    given = asked(path, vehicles=vans)
    assert (given.depot, given.depots) == ((13.4, 52.6), ((13.4, 52.4),))
    assert (given.hours, given.depot_hours, given.windows[0]) == ((420, 720), ((480, 1080),), (0, 1e9))
    assert (given.demands, [each.capacity for each in given.vehicles]) == ((15, 10), [25, 100])  # tenths
    assert given.prizes == (None, 7.5)
    assert "2 customers, depot in row 2 (north); a further depot in row 5" in read_table(path).found
    problem = problem_of(asked(path, capacity=4))
    assert [vehicles.depot for vehicles in problem.vehicles] == [0, 1]
    found = fleet.answer(problem, plan(problem, seconds=0.005))
    assert sorted(zip(found["depots"], found["routes"], strict=True)) == [(0, [1]), (1, [2])]
    table, _ = write_routes(path, {**found, "unit": "km"}, "model")
    rows = [list(row.values())[:4] for row in csv.DictReader(table.read_text().splitlines())]
    tours = {tuple(name for route, _, _, name in rows if route == number) for number in "12"}
    assert tours == {("north", "Anna", "north"), ("south", "Bert", "south")}
    shapes = json.loads((tmp_path / "customers.model.routes.geojson").read_text())["features"]
    assert [each["properties"]["name"] for each in shapes if "depot" in each["properties"]] == ["north", "south"]
    left_out = {"routes": [[1]], "depots": [0], "unit": "km"}
    table, _ = write_routes(path, left_out, "fewer")
    assert "Bert" not in table.read_text()


ASK = """
const script = require("fs").readFileSync(process.argv[1], "utf8");
const own = `${script}\\n({ readCustomers, depotsOf, decoded, COLUMNS })`;
const page = require("vm").runInNewContext(own, { TextDecoder });
const { readCustomers, depotsOf, decoded, COLUMNS: columns } = page;
const { where, customers, unused } = readCustomers(decoded(require("fs").readFileSync(0)));
const hours = [where.hours, ...where.depots.map(each => each.hours)], names = customers.map(each => each.name);
const prizes = where.prizes && customers.map(each => each.prize ?? null);
console.log(JSON.stringify({ hours, depots: depotsOf(where).length, customers: names, prizes, unused, columns }));
"""


def page_reads(table: bytes) -> dict:
    """Return what a page reads in a table, and the names by which it knows columns."""
    command = ["node", "-e", ASK, str(browser.FOLDER / "routes.js")]
    done = subprocess.run(command, input=table, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_page_reads_depots_and_prizes_as_a_table_is_read():
    found = page_reads(MANY.encode())
    assert found.pop("columns") == USUAL
    assert {"lieferzeitab", "geoffnetvon"} < set(USUAL["open"])
    assert "gewicht" in USUAL["demand"]
    read = {"hours": [[420, 720], [480, 1080]], "depots": 2, "customers": ["Anna", "Bert"], "prizes": [None, 7.5]}
    assert found == {**read, "unused": []}
    assert page_reads(f"sep=,\r\n{MANY}".encode()) == {**found, "columns": USUAL}


@pytest.mark.parametrize("mark", ["WAHR", "vrai", "sí", "1.0"])
def test_the_page_knows_the_same_marks_of_depots(mark):
    found = page_reads(MANY.replace(",,1,", f",,{mark},").encode())
    assert (found["depots"], found["customers"]) == (2, ["Anna", "Bert"])


def test_the_page_reads_a_table_of_windows_with_commas_and_hours_in_one_column():
    text = "Kunde;Breitengrad;Längengrad;Menge;Öffnungszeiten;Telefon\nLager;50,9;6,9;;7-18;\n"
    found = page_reads((text + "a;50,8;6,8;3;8.30 bis 9:15 Uhr;1\nb;50,7;6,95;4;;\n").encode("cp1252"))
    assert (found["hours"], found["customers"], found["unused"]) == ([[420, 1080]], ["a", "b"], ["Telefon"])


@given(st.lists(st.decimals(0, 1000, places=3), min_size=1, max_size=20))
def test_amounts_become_whole_numbers_in_the_same_ratio(amounts):
    given = [float(each) for each in amounts]
    whole = whole_numbers(given)
    factor = next((w / g for w, g in zip(whole, given, strict=True) if g), 1)
    assert min(abs(factor / each - 1) for each in (1, 10, 100, 1000)) < 1e-9
    assert whole == pytest.approx([factor * each for each in given])


def test_tours_of_degrees_are_a_table_and_a_map(tmp_path):
    path = written(tmp_path, BERLIN)
    table, _ = write_routes(path, {"routes": [[2, 1], [3, 4, 5, 6, 7]], "unit": "km"}, "model")
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert [row["name"] for row in rows[:4]] == ["Yard", "Potsdam", "Spandau", "Yard"]
    assert [row["row"] for row in rows[:4]] == ["2", "4", "3", "2"]
    shapes = json.loads((tmp_path / "customers.model.routes.geojson").read_text())["features"]
    lines = [each for each in shapes if each["geometry"]["type"] == "LineString"]
    assert [(each["properties"]["stops"], each["properties"]["load"]) for each in lines] == [(2, 11), (5, 20.5)]
    assert lines[0]["geometry"]["coordinates"][1] == [13.0645, 52.3906]
    assert len(shapes) == 2 + 8
    assert refusal(table) == "these are tours that were written here; give the table of customers"


def test_the_number_of_customers_chooses_among_the_policies_that_ship():
    sizes = {5: "cvrp-20", 20: "cvrp-20", 50: "cvrp-50", 100: "cvrp-100", 200: "cvrp-mixed", 1000: "cvrp-mixed"}
    assert {size: INPUTS.shipped({"customers": [(0, 0)] * size}) for size in sizes} == sizes
    assert set(sizes.values()) == set(shipped.names("cvrp"))


def test_words_beside_a_file_are_fields_of_its_inputs_and_alone_of_their_own(tmp_path):
    path = written(tmp_path, BERLIN)
    (only,) = command_inputs.given([path], {"capacity": 15}, INPUTS, None)
    assert (only.source, only.input["capacity"]) == (str(path), 15)
    own, other = command_inputs.given([path], {"capacity": 15, "depot": [0, 0]}, INPUTS, None)
    assert (own.source, other.source, other.input["capacity"]) == ("words", str(path), 15)
    (lines,) = command_inputs.given(
        [written(tmp_path, '{"depot": [1, 2]}', "a.jsonl")], {"degrees": True}, INPUTS, None
    )
    assert lines.input == {"item": 0, "depot": [1, 2], "degrees": True}


def test_predict_answers_a_folder_of_tables_beside_its_own_tours(tmp_path):
    for name, text in (("a.csv", BERLIN), ("~$b.xlsx", "open"), ("plane.csv", "x,y,demand\n1,2,0\n3,4,5\n5,9,7\n")):
        written(tmp_path, text, name)
    written(tmp_path, "route,stop\n", "a.other.routes.csv")
    done = stage(tmp_path, "predict.py", "--name", "cvrp-20", ".", "capacity=15")
    assert done.returncode == 0, done.stderr
    one, two = (json.loads(line) for line in done.stdout.splitlines())
    assert (one["name"], one["unit"], two["name"], "unit" in two) == ("a", "km", "plane", False)
    said = "a.csv: 7 customers, depot in row 2 (Yard), the first; lon from lng; demand from quantity; longitude and"
    assert said in done.stderr
    tours = sorted(each.name for each in tmp_path.glob("*.cvrp-20.*"))
    assert tours == ["a.cvrp-20.routes.csv", "a.cvrp-20.routes.geojson", "plane.cvrp-20.routes.csv"]
    problems = read(tmp_path, capacity=15)
    assert cost_of(problems["a"][0], one["routes"]) == pytest.approx(one["cost"])


def test_predict_says_of_which_row_an_error_is_and_which_rows_are_twice(tmp_path):
    written(tmp_path, "title\nname,x,y,demand\nYard,1,2,0\nA,3,4,5\nCafe,5,9,70\nA,3,4,6\n", "plan.csv")
    done = stage(tmp_path, "predict.py", "--name", "cvrp-20", "plan.csv", "capacity=15")
    said = "row 5 (Cafe) asks for 70, more than the capacity of 15; split the customer"
    assert json.loads(done.stdout)["error"].endswith(said)
    assert f"plan.csv: {said}" in done.stderr
    assert "twice by name and place, both are served: row 6 (A)" in done.stderr
    done = stage(tmp_path, "predict.py", "--name", "cvrp-20", "plan.csv", "capacity=70", "max_length=9")
    assert "row 5 (Cafe) cannot be served, even on a route of its own" in done.stderr


OPEN = """name,lon,lat,parcels,open,close
depot,13.40,52.52,,7:00,18:00
Anna,13.45,52.50,3,8:00,9:00
Bert,13.30,52.55,1234567,9:05,12:00
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [(OPEN, ["8:52", "8:00", "9:05", "9:18"]), (OPEN.replace("lon,lat", "x,y").replace(":", ""), None)],
)
def test_tours_have_times_as_hours_were_given(tmp_path, text, expected):
    path = written(tmp_path, text)
    arrivals = [[531.9, 480.0, 545.2, 557.6]]
    answer = {"routes": [[1, 2]], "arrivals": arrivals, **({"unit": "km"} if expected else {})}
    table, *shapes = write_routes(path, answer, "mine")
    rows = list(csv.DictReader(table.read_text().splitlines()))
    times = expected or ["531.9", "480", "545.2", "557.6"]
    assert [row["time"] for row in rows] == times
    assert rows[2]["demand"] == "1234567"
    if not shapes:  # in a plane
        return
    line, *points = [each["properties"] for each in json.loads(shapes[0].read_text())["features"]]
    assert (line["leaves"], line["back"]) == (times[0], times[-1])
    assert [point.get("time") for point in points] == [None, *times[1:3]]


@pytest.mark.parametrize(
    ("opens", "closes"),
    [
        *(("open", "close"), ("Öffnet", "Schließt"), ("Oeffnet", "Schliesst"), ("von", "bis")),
        *(("geöffnet von", "geöffnet bis"), ("Öffnungszeit", "Schließzeit"), ("Lieferzeit ab", "Lieferzeit bis")),
        *(("Frühestens", "Spätestens"), ("window_start", "window_end"), ("Time from", "Time to"), ("Start", "Ende")),
    ],
)
def test_opening_hours_are_kept_whatever_their_columns_are_called_and_the_line_says_so(tmp_path, opens, closes):
    text = f"Kunde;Breite;Länge;Menge;{opens};{closes}\nLager;50,9;6,9;;7:00;18:00\na;50,8;6,8;3;8:30;9:15\n"
    path = written(tmp_path, (text + "b;50,7;6,95;4;;\n").encode("cp1252"))
    problem = asked(path, capacity=10, service_times=5)
    assert problem.hours == (420, 1080)
    assert problem.windows is not None
    assert problem.windows[0] == (510, 555)
    assert problem.service_times == (5, 5)
    found = read_table(path).found
    assert "are kept: no time for service without service_times=5 or the like, 60 km/h without speed=40" in found
    assert "not used" not in found


def test_evaluations_name_their_own_keys_and_nothing_else_is_changed(tmp_path, capsys):
    text = "name,lat,lon,demand,open,close,ramp without step\nYard,52.5,13.4,,7:00,18:00,\na,52.6,13.5,7,8:30,9:00,1\n"
    read(written(tmp_path, text), capacity=10)
    said = capsys.readouterr().err
    assert (
        "no time for service without evaluation.service_times=5 or the like, 60 km/h without evaluation.speed" in said
    )
    assert "not used: ramp without step" in said


def test_hours_in_one_column_are_taken_apart_and_columns_that_are_not_used_are_named(tmp_path):
    text = "name,lat,lon,demand,Zeitfenster,Phone,Servicezeit\nYard,52.5,13.4,,7:00-18:00,,\n"
    text += "a,52.6,13.5,7,8:30 bis 9,1,5\n"
    path = written(tmp_path, text + "b,52.4,13.3,9,,2,\n")
    problem = asked(path, capacity=10)
    assert (problem.hours, problem.service_times) == ((420, 1080), (5, 0))
    assert "opening hours are kept: 60 km/h without speed=40 or the like" in read_table(path).found
    assert "; not used: Phone" in read_table(path).found
    hour = text.replace("8:30 bis 9,", "8.30 Uhr bis 9 Uhr,").replace(
        ",1,5", ",1,0:05"
    )  # as a spreadsheet writes five minutes
    titled = written(tmp_path, f"Touren der Woche\n\nStand:,Montag\n{hour}b,52.4,13.3,9,,2,\n", "titled.csv")
    again = asked(titled, capacity=10)
    assert (again.hours, again.windows, again.service_times) == (problem.hours, problem.windows, (5, 0))
    wrong = written(tmp_path, text.replace("7:00-18:00", "all day") + "b,52.4,13.3,9,,2,\n", "wrong.csv")
    assert refusal(wrong) == "row 2: hours are 'all day'; type them as 8:00-17:30"


def test_points_between_thousands_are_told_from_decimal_commas(tmp_path):
    table = "name;x;y;demand;capacity\nDepot;0,5;1;0;9000\nA;2,5;3;{};\n"
    assert read_table(written(tmp_path, table.format("1,234"), "a.csv")).demands == [0, 1.234]
    found = refusal(written(tmp_path, table.format("1.234"), "b.csv"))
    assert found.startswith("row 3: 1.234 may be 1234 or 1.234, as other cells have decimal commas")
    command = ["node", "-e", ASK, str(browser.FOLDER / "routes.js")]
    done = subprocess.run(command, input=table.format("1.234").encode(), capture_output=True, check=False)
    assert b"row 3: 1.234 may be 1234 or 1.234, as other cells have decimal commas" in done.stderr
    plain = table.format("1.234").replace("0,5", "0.5").replace("2,5", "2.5")
    assert read_table(written(tmp_path, plain, "c.csv")).demands == [0, 1.234]


def test_a_place_that_is_an_area_is_refused_and_lines_are_passed_over(tmp_path):
    path = as_geojson(tmp_path, "name,lng,lat,demand\nDepot,13.4,52.5,0\nA,13.5,52.6,3\n")
    given = json.loads(path.read_text())
    road = {"type": "LineString", "coordinates": [[13.4, 52.5], [13.5, 52.6]]}
    area = {"type": "Polygon", "coordinates": [[[13.4, 52.5], [13.5, 52.6], [13.5, 52.5], [13.4, 52.5]]]}
    for shape, name in ((road, "road"), (area, "area")):
        feature = {"type": "Feature", "properties": {"name": name, "demand": 1}, "geometry": shape}
        written(tmp_path, json.dumps({**given, "features": [*given["features"], feature]}), f"{name}.geojson")
    assert read_table(tmp_path / "road.geojson").names == ["Depot", "A"]
    assert refusal(tmp_path / "area.geojson").startswith("row 3: lon is 'Polygon'")


@pytest.mark.parametrize("ending", [".csv", ".xlsx"])
@pytest.mark.parametrize("mark", ["WAHR", "vrai", "Oui", "ja", "si", "sí", "sim", "true", "yes", "1", "1.0"])
def test_a_depot_is_marked_in_the_users_language(tmp_path, ending, mark):
    lines = [["name", "lon", "lat", "demand", "depot"], ["two\nlines", 13.1, 52.5, 0, ""], ["B", 13.2, 52.6, 4, ""]]
    lines += [["Hof", 13.3, 52.4, 0, mark], ["Halle", 13.3, 52.45, 0, mark]]
    path = tmp_path / f"customers{ending}"
    if ending == ".csv":
        with path.open("w", newline="") as file:
            csv.writer(file).writerows(lines)
    else:
        book = pytest.importorskip("openpyxl").Workbook()
        for line in lines:
            book.active.append(line)
        book.save(path)
    assert read_table(path).found.startswith("2 customers, depot in row 4 (Hof); a further depot in row 5;")
