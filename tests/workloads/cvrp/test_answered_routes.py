"""What is answered to problems beyond one capacity: units, refusals, plans without a search, and files of tours."""

import csv
import json
import re
import subprocess
import zipfile

import numpy as np
import pytest

from common import browser, sheets
from common.config import checked
from common.errors import UserError
from models.routing import fleet, native
from models.routing.inputs import RoutingInput, RoutingSettings, problem_of
from models.routing.problems import cost_of, measured
from pipelines.workloads.cvrp import input_files
from pipelines.workloads.cvrp.input_files import INPUTS, as_input
from pipelines.workloads.cvrp.instances.customers import completed, read_table, whole_numbers, write_routes
from pipelines.workloads.cvrp.solvers.pyvrp_search import pyvrp_plan
from tests.models.routing.policies import make_policy
from tests.workloads.cvrp.files import fields, npz, read, refusal, vrp
from tests.workloads.cvrp.test_customers import BERLIN, MANY, as_xlsx, asked, written
from tests.workloads.cvrp.test_fleet_files import FLEET, TIMED
from tests.workloads.cvrp.test_rules import made

PLAIN = {"depot": [0, 0], "customers": [[1, 0], [0, 3]], "demands": [1, 1], "capacity": 2}
needs_native_code = pytest.mark.skipif(native.unavailable() is not None, reason="needs a C++ compiler")


@needs_native_code
@pytest.mark.parametrize(("rounding", "cost"), [("exact", 8.7806), ("round", 8), ("trunc", 8), ("dimacs", 8.6)])
def test_every_rounding_is_searched_in_a_plane(rounding, cost):
    given = {**PLAIN, "customers": [[1, 0.55], [2, 3.77]], "rounding": rounding}
    (found,) = make_policy("gt").predict([given], milliseconds=2)
    assert found["cost"] == pytest.approx(cost, abs=5e-4)


@needs_native_code
def test_tours_of_open_routes_end_at_their_last_customers(tmp_path):
    path = written(
        tmp_path,
        BERLIN.replace("quantity", "quantity,open,close").replace("Yard,52.52,13.405,", "Yard,52.52,13.405,,7:00,"),
    )
    given = asked(path, capacity=15, open_routes=True)
    (answer,) = make_policy("gt").predict([given], milliseconds=2)
    table, shapes = write_routes(path, answer, "open")
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert [row["name"] for row in rows].count("Yard") == len(answer["routes"])
    assert len(rows) == 7 + len(answer["routes"])
    lines = [each["properties"] for each in json.loads(shapes.read_text())["features"][: len(answer["routes"])]]
    assert sum(each["km"] for each in lines) == pytest.approx(answer["cost"], abs=1e-2)
    assert sum(each["stops"] for each in lines) == 7
    assert all("ends" in each and "back" not in each for each in lines)


def test_tours_in_a_plane_are_no_map_though_they_might_be_degrees(tmp_path):
    path = written(tmp_path, "name,x,y,demand\nYard,1.234,2.345,\nA,3.456,4.567,3\n")
    assert read_table(path).found.endswith("by the range of x and y: costs are in km unless degrees=false")
    answers = [*make_policy("gt").predict([asked(path, capacity=9, degrees=each) for each in (True, False)], 2)]
    sphere, plane = (
        write_routes(path, answer, name) for answer, name in zip(answers, ("sphere", "plane"), strict=True)
    )
    assert [each.name for each in plane] == ["customers.plane.routes.csv"]
    assert plane[0].read_text().startswith("route,stop,row,name,x,y,demand\n")
    path.with_suffix(".tsv").write_text(path.read_text().replace(",", "\t"))  # a table of the same name
    for table in (path, path.with_suffix(".tsv")):
        assert write_routes(table, answers[1], "twin") == [tmp_path / f"{table.name}.twin.routes.csv"]
    assert [each.suffix for each in sphere] == [".csv", ".geojson"]


def test_a_cost_of_ones_own_distances_is_in_no_unit_of_ours():
    metres = {**PLAIN, "degrees": True, "distances": [[0, 1000, 2000], [1000, 0, 1500], [2000, 1500, 0]]}
    own, sphere = make_policy("gt").predict([metres, {**PLAIN, "degrees": True}], 2, milliseconds=0)
    assert (own["cost"], "unit" in own, sphere["unit"]) == (4500, False, "km")


def test_a_further_depot_off_the_sphere_is_refused(tmp_path):
    path = written(tmp_path, MANY.replace("13.40,52.40", "13.40,524.0"))
    with pytest.raises(ValueError, match=r"a depot is at \(13.4, 524\), which is no longitude"):
        asked(path, capacity=4)


@pytest.mark.parametrize("given", [{"windows": np.tile([0.0, 9.0], (3, 4, 1))}, {"hours": np.tile([0.0, 9.0], (3, 1))}])
def test_instances_with_windows_and_no_hours_or_the_other_way_round_are_inputs(tmp_path, given):
    for found in INPUTS.read([npz(tmp_path, **fields(), **given)]):
        problem = problem_of(RoutingInput.model_validate(found.input))
        assert np.isin(problem.opening[:, 1], [9, 1e9]).all()


def test_a_window_that_never_closes_lets_nobody_come_late():
    given = RoutingInput.model_validate({**PLAIN, "windows": [[0, 1e9], [0, 2.995]]})
    assert 0 < problem_of(given).tolerance < 1e-9
    (found,) = make_policy("gt").predict([given], milliseconds=1)
    assert found.get("error", "").startswith("customer 2 cannot be served" if not native.unavailable() else "only")


def test_kinds_of_vehicles_stand_in_place_of_the_capacity_and_none_is_dropped():
    large = completed({**PLAIN, "demands": [50, 1], "capacity": 40, "vehicles": [{"capacity": 90}]})
    assert problem_of(RoutingInput.model_validate(large)).capacity == 90
    small = {**PLAIN, "demands": [50, 1], "capacity": 100, "vehicles": [{"capacity": 40}]}
    with pytest.raises(ValueError, match="customer 1 asks for 50, more than the capacity of 40"):
        RoutingInput.model_validate(completed(small))
    with pytest.raises(ValueError, match="vehicles"):
        RoutingInput.model_validate(completed({**PLAIN, "vehicles": [{"capacity": 40}, 5]}))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"vehicles": [{"capacity": 2}], "max_length": 3}, "max_length is 3, but vehicles say their own; give"),
        ({"vehicles": [{"capacity": 2}], "num_vehicles": 1}, "num_vehicles is 1, but vehicles say their own"),
        ({"durations": [[0, 1, 1]] * 3, "speed": 5}, "speed is 5, but durations say their own"),
        ({"windows": [[0, 5], [5, 1]]}, "customer 2 opens at 5 and closes at 1; correct one of them"),
        ({"hours": [5, 1]}, "a depot opens at 5 and closes at 1"),
        ({"depots": [[1, 1]], "depot_hours": [[5, 1]]}, "a depot opens at 5 and closes at 1"),
    ],
)
def test_fields_that_would_be_passed_over_or_contradict_each_other_are_refused(fields, message):
    """Limits beside kinds of vehicles and a speed beside durations had no effect, and nothing said so."""
    with pytest.raises(ValueError, match=message):
        RoutingInput.model_validate({**PLAIN, **fields})


def test_a_mistyped_key_of_a_vehicle_is_told_the_one_that_vehicles_have():
    """It was told itself, as the problem has a key of that name."""
    with pytest.raises(UserError, match=r"vehicles.0.depots: unknown key; did you mean 'vehicles.depot'\?"):
        checked(RoutingInput, {**PLAIN, "vehicles": [{"capacity": 2, "depots": 1}]}, "an input")


def test_times_from_a_place_to_itself_are_passed_over():
    """A reference refused the whole problem for them."""
    problem = problem_of(RoutingInput.model_validate({**PLAIN, "durations": [[5] * 3] * 3}))
    assert measured(problem)[1].tolist() == [[0, 5, 5], [5, 0, 5], [5, 5, 0]]
    assert pyvrp_plan(problem, 0.05, 0)


def test_a_matrix_alone_has_rows_of_further_depots_behind_those_of_customers():
    roads = [[0, 5, 9, 0], [5, 0, 9, 2], [9, 9, 0, 1], [0, 2, 1, 0]]
    given = RoutingInput.model_validate({"distances": roads, "demands": [1, 1], "capacity": 2, "depots": [[0, 0]]})
    assert (len(given.customers), len(given.depots)) == (2, 1)
    assert cost_of(problem_of(given), [[1], [2]], [0, 1]) == 10 + 2


@needs_native_code
@pytest.mark.parametrize(
    "limits",
    [{"windows": [[0, 9], [0, 2]]}, {"max_length": 5}, {"max_duration": 5}, {"windows": [[0, 9]] * 2, "hours": [0, 5]}],
)
def test_a_policy_without_a_search_says_whom_no_route_can_serve(limits):
    (found,) = made().predict([{**PLAIN, **limits}], milliseconds=0)
    assert found["error"].startswith("customer 2 cannot be served, even on a route of its own")


def test_tours_of_a_policy_are_bounded_only_where_it_builds_some():
    places = [[number % 40, number // 40] for number in range(1500)]
    many, settings = {**PLAIN, "customers": places, "demands": [1] * 1500}, RoutingSettings(milliseconds=0)
    with pytest.raises(ValueError, match="200 tours of a policy for 1,500 customers would take long"):
        make_policy("gt").prepared(RoutingInput.model_validate(many), settings)
    for other in ({"hours": [0, 9]}, {"initial": [[1, 2]]}):
        make_policy("gt").prepared(RoutingInput.model_validate({**many, **other}), settings)
    with pytest.raises(ValueError, match="200 tours of a policy"):
        made().prepared(RoutingInput.model_validate({**many, "hours": [0, 9]}), settings)


def test_more_customers_than_solvers_hold_distances_of_have_savings_as_their_rival(monkeypatch):
    given = RoutingInput.model_validate({**PLAIN, "customers": [[1, 0], [0, 3], [4, 4]], "demands": [1, 1, 1]})
    every = {"savings", "PyVRP"} | ({"ruin and recreate"} if not native.unavailable() else set())
    assert input_files.rivals(given, 0.002).keys() == every
    for module in (input_files, fleet):
        monkeypatch.setattr(module, "MOST_CUSTOMERS", 2, raising=False)
    assert input_files.rivals(given, 0.002).keys() == {"savings"}


def test_rows_of_a_workbook_count_whatever_it_states_of_their_number(tmp_path):
    whole = as_xlsx(tmp_path, BERLIN)
    for stated in (b"A1", b"A1:D3", b"A1:Z99"):
        with zipfile.ZipFile(whole) as archive, zipfile.ZipFile(tmp_path / "other.xlsx", "w") as changed:
            for name in archive.namelist():
                part = re.sub(rb'<dimension ref="[^"]*"', b'<dimension ref="' + stated + b'"', archive.read(name))
                changed.writestr(name, part)
        assert read_table(tmp_path / "other.xlsx").places.tolist() == read_table(whole).places.tolist()
    assert len({len(cells) for _, cells in sheets.rows(whole)}) == 1


PAGE = """
const script = require("fs").readFileSync(process.argv[1], "utf8");
const page = require("vm").runInNewContext(`${script}\\n({ readCustomers, wholeNumbers })`, {});
const read = text => { const { where: { unit }, capacity } = page.readCustomers(text); return [unit, capacity]; };
for (const given of JSON.parse(require("fs").readFileSync(0))) {
  try { console.log(JSON.stringify(typeof given == "string" ? read(given) : page.wholeNumbers(given))); }
  catch (error) { console.log(JSON.stringify(error.message)); }
}
"""


def on_the_page(given: list) -> list:
    """Return what a page makes of tables, (unit, capacity), and of amounts; or its errors."""
    command = ["node", "-e", PAGE, str(browser.FOLDER / "routes.js")]
    done = subprocess.run(command, input=json.dumps(given), capture_output=True, check=True, text=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_demands_are_whole_numbers_on_the_page_as_they_are_in_commands():
    amounts = [[2.5, 100], [0.0125, 2], [7], [0, 0.3, 12.75], [12345, 0.1234]]
    *found, refused = on_the_page(amounts)
    assert found == [whole_numbers(each) for each in amounts[:-1]]
    with pytest.raises(UserError) as error:
        whole_numbers(amounts[-1])
    assert refused == str(error.value)


def test_the_page_reads_capacities_depots_and_degrees_as_a_table_is_read(tmp_path):
    texts = {
        "name;x;y;demand;capacity\nYard;1;2;;7,5\nA;3;4;2,5;\nB;5;6;1;\n": ["", 7.5],
        "name,x,y,demand,capacity\nYard,1,2,,20\nA,3,4,2,21\nB,5,6,1,\n": "capacity is 20 in row 2 and 21 in row 3; ",
        "name,x,y,demand\nA,1,2,9\nB,3,4,2\nC,5,6,1\n": "row 2 is the depot, being the first, but its demand is 9; ",
        "name,x,y,demand\nA,1,2,9\nDepot,3,4,2\nC,5,6,1\n": "row 3 is the depot, as it says, but its demand is 2; ",
        "name,x,y,demand\nYard,13.405,52.52,\nA,13.199,52.5361,2\nB,13.5,52.5,1\n": ["\u00a0km", None],
        "name,x,y,demand\nYard,0.3141,0.5926,\nA,0.5358,0.9793,2\nB,0.1,0.1,1\n": ["", None],
        "name,x,y,demand\nYard,13.40,52.52,\nA,13.19,52.53,2\nB,13.555,52.5,1\n": ["", None],
        "name,x,y,demand\nYard,13.405,52.52,\nA,23.499,52.536,2\nB,13.5,52.5,1\n": ["", None],
        "name,x,y,demand\nYard,13.405,92.52,\nA,13.199,92.5361,2\nB,13.5,92.5,1\n": ["", None],
    }
    for (text, expected), found in zip(texts.items(), on_the_page([*texts]), strict=True):
        path = written(tmp_path, text)
        if isinstance(expected, str):
            assert found.startswith(expected)
            with pytest.raises(UserError) as refused:
                read_table(path)
            assert str(refused.value).startswith(f"{path}: {expected}")
        else:
            table = read_table(path)
            assert found == expected == ["\u00a0km" if table.degrees else "", table.others.get("capacity")]


def test_a_file_of_several_depots_has_vehicles_at_each_or_says_where(tmp_path):
    everywhere = TIMED.replace("2 4\n", "2 0\n").replace("1\n-1", "1\n2\n-1").replace("VEHICLES : 2\n", "")
    (problem,) = read(vrp(tmp_path, everywhere.replace("TYPE : VRPTW", "TYPE : MDVRPTW")))
    assert [kind.depot for kind in problem.vehicles] == [0, 1]
    assert problem.vehicles == problem_of(RoutingInput.model_validate(as_input(problem))).vehicles
    begin, _, end = FLEET.partition("VEHICLES_DEPOT_SECTION\n1 1\n2 2\n3 1\n")
    assert end
    said = refusal(vrp(tmp_path, begin + end))
    assert said == "VEHICLES_DEPOT_SECTION is missing; say where each of the 3 vehicles begins"


def test_thousands_are_seen_where_other_rows_are_short(tmp_path):
    rows = "name;x;y;demand\nYard;1;2;\nA;3;4;1.200\nB;5;6;700\nC;8;8;800\n"
    for text in (rows, f"Customers;\n{rows}", rows.replace("Yard;1;2;", "Yard;1;2")):
        with pytest.raises(ValueError, match=r"1.200 among whole numbers may be thousands"):
            read_table(written(tmp_path, text))
