"""Time windows, depots, vehicles, prizes and one-way roads are read from files as PyVRP and Solomon write them."""

import json
from pathlib import Path

import numpy as np
import pytest

from models.routing import native
from models.routing.inputs import RoutingInput, RoutingSettings, problem_of
from models.routing.problems import Vehicles, cost_of, distances, travel_between
from pipelines.workloads.cvrp.input_files import INPUTS, as_input
from pipelines.workloads.cvrp.instances.customers import read_table
from pipelines.workloads.cvrp.instances.files import read as read_files
from pipelines.workloads.cvrp.solvers.validator import check
from tests.models.routing.policies import make_policy
from tests.workloads.cvrp.files import read, refusal, vrp

TIMED = """NAME : timed
TYPE : VRPTW
DIMENSION : 4
VEHICLES : 2
CAPACITY : 10
SERVICE_TIME : 5
EDGE_WEIGHT_TYPE : EUC_2D
NODE_COORD_SECTION
1 0 0
2 1 1
3 2 0
4 0 3
DEMAND_SECTION
1 0
2 4
3 5
4 6
TIME_WINDOW_SECTION
1 0 100
2 0 10
3 20 30
4 0 50
DEPOT_SECTION
1
-1
EOF
"""
FLEET = """NAME : fleet
TYPE : MDVRPTW
DIMENSION : 5
VEHICLES : 3
EDGE_WEIGHT_TYPE : EXPLICIT
EDGE_WEIGHT_FORMAT : FULL_MATRIX
EDGE_WEIGHT_SECTION
0 1 2 3 4
5 0 6 7 8
1 1 0 1 1
2 2 2 0 2
3 3 3 3 0
CAPACITY_SECTION
1 10
2 20
3 10
VEHICLES_DEPOT_SECTION
1 1
2 2
3 1
VEHICLES_FIXED_COST : 7
VEHICLES_UNIT_DISTANCE_COST_SECTION
1 1
2 2
3 1
VEHICLES_MAX_DISTANCE : 30
VEHICLES_MAX_DURATION : 40
DEMAND_SECTION
1 0
2 0
3 4
4 5
5 6
SERVICE_TIME_SECTION
1 0
2 0
3 1
4 2
5 3
PRIZE_SECTION
1 0
2 0
3 0
4 9
5 0
DEPOT_SECTION
1
2
-1
EOF
"""
SOLOMON = """timed

VEHICLE
NUMBER     CAPACITY
  2         10

CUSTOMER
CUST NO.  XCOORD.   YCOORD.    DEMAND   READY TIME  DUE DATE   SERVICE   TIME

    0      0          0          0          0        100          0
    1      1          1          4          0         10          5
    2      2          0          5         20         30          5
    3      0          3          6          0         50          5
"""


def test_time_windows_are_read_with_distances_cut_to_a_decimal(tmp_path):
    (problem,) = read(vrp(tmp_path, TIMED))
    assert problem.vehicles == (Vehicles(10, 2),)
    assert problem.windows.tolist() == [[0, 100], [0, 10], [20, 30], [0, 50]]
    assert problem.service_times.tolist() == [0, 5, 5, 5]
    assert distances(problem)[0].tolist() == [0, 1.4, 2, 3]
    check(problem, [[1, 2], [3]])
    assert cost_of(problem, [[1, 2], [3]]) == 1.4 + 1.4 + 2 + 6


def test_solomons_file_is_the_same_problem(tmp_path):
    (tmp_path / "timed.txt").write_text(SOLOMON)
    (tmp_path / "readme.txt").write_text("what these are")
    (timed,), (solomon,) = read(vrp(tmp_path, TIMED)), read(tmp_path / "timed.txt")
    for what in ("locs", "demand", "windows", "service_times"):
        assert np.array_equal(getattr(timed, what), getattr(solomon, what))
    assert (timed.vehicles, timed.rounding) == (solomon.vehicles, solomon.rounding)
    assert refusal(tmp_path / "readme.txt").startswith("not one of Solomon's files")
    assert "pickups and deliveries (Li and Lim) not at all" in refusal(tmp_path / "readme.txt")
    (tmp_path / "vrplib.txt").write_text(TIMED)
    assert np.array_equal(read(tmp_path / "vrplib.txt")[0].windows, timed.windows)
    (tmp_path / "timed.txt").write_text(SOLOMON.replace("  4  ", " 14  "))
    assert refusal(tmp_path / "timed.txt").startswith("demands must be whole numbers, none above the capacity of 10")


def test_depots_vehicles_prizes_and_one_way_roads_are_read(tmp_path):
    (problem,) = read(vrp(tmp_path, FLEET))
    small, large = Vehicles(10, 2, 0, 7, 1, 30, 40), Vehicles(20, 1, 1, 7, 2, 30, 40)
    assert problem.vehicles == (small, large)
    assert (problem.customers, problem.depot_nodes) == (3, [0, 4])  # customers 1 to 3, then the second depot
    assert problem.demand.tolist() == [0, 4, 5, 6, 0]
    assert problem.prizes.tolist() == [np.inf, np.inf, 9, np.inf, np.inf]
    assert distances(problem)[1].tolist() == [1, 0, 1, 1, 1]
    assert problem.service_times.tolist() == [0, 1, 2, 3, 0]
    assert cost_of(problem, [[1], [3]], [0, 1]) == 7 + 2 + 1 + 7 + 2 * (8 + 3) + 9


@pytest.mark.parametrize(
    ("text", "old", "new", "message"),
    [
        (TIMED, "VEHICLES : 2", "VEHICLES : 0", "VEHICLES is 0; there must be from 1 to a million"),
        (TIMED, "3 20 30\n", "", "DIMENSION is 4 but TIME_WINDOW_SECTION has 3 rows"),
        (TIMED, "3 20 30", "3 20", "line 21: '3 20' in TIME_WINDOW_SECTION; each row is number, earliest and latest"),
        (TIMED, "TYPE : VRPTW", "TYPE : VRPPD", "TYPE is 'VRPPD'; only"),
        (TIMED, "VEHICLES : 2", "VEHICLES_MAX_RELOADS : 2", "'VEHICLES_MAX_RELOADS' cannot be solved here"),
        (FLEET, "2 2\n3 1\nVEHICLES_FIXED", "2 3\n3 1\nVEHICLES_FIXED", "vehicle 2 is at node 3, which is no depot"),
        (FLEET, "3 10\nVEHICLES_D", "VEHICLES_D", "VEHICLES is 3 but CAPACITY_SECTION has 2 rows"),
        (FLEET, "PRIZE_SECTION", "BACKHAUL_SECTION", "'BACKHAUL_SECTION' cannot be solved here"),
        (FLEET, "1 0\n2 0\n3 4", "1 0\n2 1\n3 4", "the depot, node 2, has a demand of 1; set it to 0"),
    ],
)
def test_what_is_wrong_or_not_solved_is_refused_by_name(tmp_path, text, old, new, message):
    assert refusal(vrp(tmp_path, text.replace(old, new, 1))).startswith(message)


@pytest.mark.parametrize("text", [TIMED, FLEET, FLEET.replace("MDVRPTW", "OVRP")])
def test_inputs_say_all_that_files_do(tmp_path, text):
    (problem,) = read(vrp(tmp_path, text))
    asked = problem_of(RoutingInput.model_validate_json(json.dumps(as_input(problem))))
    nodes = np.arange(len(problem.locs))
    for measure in (distances, lambda each: travel_between(each, nodes[:, None], nodes[None])):
        assert np.array_equal(measure(asked), measure(problem))
    for what in ("vehicles", "opening", "service_times", "customers", "depots", "open_routes", "tolerance"):
        assert np.array_equal(getattr(asked, what), getattr(problem, what)), what
    routes = ([[1], [2, 3]], [0, 1] if problem.fleet[1:] else [0, 0])
    assert cost_of(asked, *routes) == cost_of(problem, *routes)


def test_a_matrix_is_not_cut_for_time_windows_and_words_round_it(tmp_path):
    """Roads of a quarter of an hour took two tenths, so that nobody could keep to the times."""
    places = "NODE_COORD_SECTION\n1 0 0\n2 1 1\n3 2 0\n4 0 3\n"
    roads = "EDGE_WEIGHT_FORMAT : UPPER_ROW\nEDGE_WEIGHT_SECTION\n0.25 1 1\n1 1\n1\n"
    path = vrp(tmp_path, TIMED.replace(places, roads).replace("EUC_2D", "EXPLICIT"))
    given = next(INPUTS.read([path])).input
    for words, way in (({}, 0.25), ({"rounding": "trunc"}, 0), ({"rounding": "dimacs"}, 0.2)):
        assert distances(problem_of(RoutingInput.model_validate({**given, **words})))[0, 1] == way
        ((evaluated,),) = read_files(path, **words).values()
        assert distances(evaluated)[0, 1] == way


def test_opening_hours_are_columns(tmp_path):
    path = tmp_path / "shops.csv"
    path.write_text("x,y,demand,opens,closes,service\n0,0,,7:30,17:00,\n1,1,4,,09:00,10\n2,0,5,600,660.5,\n")
    table = read_table(path)
    asked = problem_of(RoutingInput.model_validate({**table.as_input(), "capacity": 9, "speed": 30}))
    assert asked.windows.tolist() == [[450, 1020], [0, 540], [600, 660.5]]
    assert asked.service_times.tolist() == [0, 10, 0]
    assert travel_between(asked, np.array([0]), np.array([2])).tolist() == [4.0]
    ((evaluated,),) = read_files(path, capacity=9.5, speed=30, service_times=3).values()
    assert np.array_equal(evaluated.opening, asked.opening)
    assert travel_between(evaluated, np.array([0]), np.array([2])).tolist() == [4.0]
    assert evaluated.service_times.tolist() == [0, 3, 3]
    assert (evaluated.capacity, evaluated.demand.tolist()) == (95, [0, 40, 50])
    path.write_text("x,y,demand,open,close\n0,0,,,\n1,1,4,9:00,8:00\n")
    with pytest.raises(Exception, match="row 3: opens at 540 and closes at 480; correct one of them"):
        read_table(path)


def test_depots_have_opening_hours_of_their_own(tmp_path):
    text = TIMED.replace("2 4\n", "2 0\n").replace("1\n-1", "1\n2\n-1").replace("VEHICLES : 2\n", "")
    (problem,) = read(vrp(tmp_path, text.replace("TYPE : VRPTW", "TYPE : MDVRPTW")))
    asked = problem_of(RoutingInput.model_validate_json(json.dumps(as_input(problem))))
    assert asked.opening.tolist() == problem.opening.tolist() == [[0, 100], [20, 30], [0, 50], [0, 10]]
    with pytest.raises(ValueError, match="depot_hours must have 1 rows"):
        RoutingInput.model_validate({**as_input(problem), "depot_hours": [[0, 1], [0, 1]]})


def test_a_matrix_alone_is_an_input():
    roads = [[0, 1, 9], [9, 0, 1], [1, 9, 0]]
    asked = RoutingInput.model_validate({"distances": roads, "demands": [1, 1], "capacity": 2})
    assert len(asked.customers) == 2
    assert cost_of(problem_of(asked), [[1, 2]]) == 3
    for wrong, message in (
        ({"durations": [[0]]}, "durations must have 3 rows of 3 numbers"),
        ({"distances": [[0, 1, 9], [9, 0], [1, 9, 0]]}, "distances must be a square of numbers, a row for each node"),
        ({"distances": [[{}, 1], [1, 0]]}, "distances must be a square of numbers, a row for each node"),
        ({"vehicles": [5]}, "vehicles"),
        ({"windows": [[0, 1]]}, "windows must have 2 rows"),
        ({"vehicles": [{"capacity": 2, "depot": 1}]}, "vehicles are at depot 1, but depots has only 0; add"),
    ):
        with pytest.raises(ValueError, match=message):
            RoutingInput.model_validate({"distances": roads, "demands": [1, 1], "capacity": 2, **wrong})


@pytest.mark.skipif(native.unavailable() is not None, reason="needs a C++ compiler")
def test_answers_say_when_vehicles_come_which_they_are_and_who_is_left_out(tmp_path):
    plain = {"depot": [0, 0], "customers": [[1, 0], [2, 0]], "demands": [1, 1], "capacity": 2}
    timed = {**plain, "name": "timed", "windows": [[0, 4], [5, 9]], "hours": [0, 20], "service_times": [1, 1]}
    kinds = {
        **plain,
        "vehicles": [{"capacity": 1, "count": 1}, {"capacity": 2, "fixed_cost": 1}],
        "prizes": [None, 0.5],
    }
    settings, policy = RoutingSettings(milliseconds=5), make_policy("gat")
    few = {**plain, "name": "few", "capacity": 1, "num_vehicles": 1}
    asked = [policy.prepared(RoutingInput.model_validate(each), settings) for each in (timed, few, plain, kinds)]
    by_time, wrong, usual, by_prize = policy.answers(asked, settings)
    assert wrong["name"] == "few"
    assert wrong["error"].startswith("no plan was found that serves all: 1 customers are left over")
    by = {"by": "search without a policy"}
    assert by_time == {"name": "timed", "routes": [[1, 2]], "cost": 4.0, "arrivals": [[2.0, 3.0, 5.0, 8.0]], **by}
    assert (sorted(usual["routes"][0]), usual["cost"]) == ([1, 2], 4.0)
    assert by_prize == {"routes": [[1]], "cost": 2.5, "vehicles": [0], "left_out": [2], **by}


def test_texts_of_instances_in_a_folder_are_told_from_notes(tmp_path):
    (tmp_path / "notes.txt").write_text("2024-05-01: what these are\n1 2 3\n")
    (tmp_path / "cordeau.txt").write_text("0 4 50 4\n0 80\n1 37 52 0 7 1 4 1 2 4 8\n")
    plain = (
        "NAME: a\nTYPE: CVRP\nDIMENSION: 2\nCAPACITY: 9\nEDGE_WEIGHT_TYPE: EUC_2D\nNODE_COORD_SECTION\n1 0 0\n2 3 4\n"
    )
    (tmp_path / "plain.txt").write_text(plain + "DEMAND_SECTION\n1 0\n2 7\nDEPOT_SECTION\n1\n-1\nEOF\n")
    found = {Path(each.source).name: each.error for each in INPUTS.read([tmp_path])}
    assert found.keys() == {"cordeau.txt", "plain.txt"}
    assert not found["plain.txt"]
    assert "Cordeau's and others can be given as .vrp or tables" in found["cordeau.txt"]
