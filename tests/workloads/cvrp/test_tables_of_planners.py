"""Tables as route planners, spreadsheets and geocoders write them, read or refused alike by Python and the page."""

import json
import subprocess
from pathlib import Path

import pytest

from common import browser
from common.errors import UserError
from pipelines.workloads.cvrp.instances.customers import read_table, write_routes

HEAD = "name,lat,lng,demand"
DEPOT, ANNA, BERT = "Depot,52.52,13.405,0", "Anna,52.536,13.199,4", "Bert,52.39,13.06,7"
PAGE = """
const script = require("fs").readFileSync(process.argv[1], "utf8");
const { readCustomers } = require("vm").runInNewContext(`${script}\\n({ readCustomers })`);
const read = text => { try { return readCustomers(text); } catch ({ message }) { return { message }; } };
const texts = JSON.parse(require("fs").readFileSync(0, "utf8"));
console.log(JSON.stringify(texts.map(text => {
  const { message, customers } = read(text);
  return message ?? { hours: customers.map(each => each.hours), service: customers.map(each => each.service) };
})));
"""


def hours(span: str) -> str:
    return f'{HEAD},time window\n{DEPOT},\n{ANNA},"{span}"\n{BERT},\n'


def times(opens: str, closes: str, more: str = "") -> str:
    return f"{HEAD},open,close\n{DEPOT},,\n{ANNA},{opens},{closes}\n{BERT},{more or ','}\n"


HOURS = {
    **dict.fromkeys(("8am-12pm", "8:00 AM - 12:00 PM", "08:00\u201312:00", "8:00 \u2014 12:00"), (480, 720)),
    **dict.fromkeys(("0800-1200", "8 a.m. to 12 p.m.", "8h à 12h", "8 Uhr bis 12 Uhr", "8.00-12"), (480, 720)),
    "8h30-12h": (510, 720),
    "12am-1:30pm": (0, 810),
    "9:05 ~ 17:00": (545, 1020),
}
NO_HOURS = ["1-3pm", "closed", "08:00-10:00, 14:00-16:00", "8:75-12:00", "480-1300pm", "480-1000", "600-720"]
TIMES = {
    ("8:00 AM", "1:30 PM"): (480, 810),
    ("8h00", "13h30"): (480, 810),
    ("0800", "0930"): (480, 570),
    ("8 Uhr", "24:00"): (480, 1440),
    ("480", "810"): (480, 810),
}
MINUTES = "opening hours such as {} would mean minutes; type times, such as 8:30"
REFUSED = {
    "hours": (times("8", "13"), MINUTES.format(13)),
    "hours with a point": (times("8.00", "13.30"), MINUTES.format("13.3")),
    "hours and minutes without a colon": (times("800", "1830"), MINUTES.format(1830)),
    "with a nought before": (times("0800", "1330"), MINUTES.format(1330)),
    "a number beside a time": (times("8", "12:00"), MINUTES.format(8)),
    "sixty minutes": (times("8:60", "13:00"), "open is"),
    "an address that was not found": (
        f"{HEAD}\n{DEPOT}\n{ANNA}\nCleo,0,0,3\n{BERT}\n",
        "row 4 is at 0, 0, as no address is",
    ),
    "seconds": (f"{HEAD},service time (s)\n{DEPOT},\n{ANNA},600\n{BERT},300\n", "service time (s) is not in minutes"),
    "hours of service": (f"{HEAD},Service [h]\n{DEPOT},\n{ANNA},0.5\n{BERT},1\n", "Service [h] is not in minutes"),
    "minutes and seconds": (f"{HEAD},service\n{DEPOT},\n{ANNA},15:00\n{BERT},1:30\n", "service is"),
    "a demand below nothing": (f"{HEAD}\n{DEPOT}\nAnna,52.536,13.199,-4\n{BERT}\n", "row 3: demand is"),
    "thousands with points": (
        "name;x;y;demand\nDepot;5;5;0\nA;1;2;1.200\nB;3;4;2.300\nC;3;4;700\n",
        "1.200 among whole numbers may be thousands",
    ),
    "thousands with commas": (
        "name;x;y;demand\nDepot;5;5;0\nA;1;2;1,200\nB;3;4;2,300\nC;3;4;700\n",
        "1,200 among whole numbers may be thousands",
    ),
}
PLANNERS = {
    "Routific": "Name,Latitude,Longitude,Load,Delivery Window Start,Delivery Window End,Visit Duration",
    "OptimoRoute": "Location name,Latitude,Longitude,Load1,TW Start,TW End,Duration",
    "Circuit": "Name,Latitude,Longitude,Package count,Earliest arrival time,Latest arrival time,Time at stop (minutes)",
    "German": "Firma,Breitengrad,Längengrad,Pakete,Zeitfenster von,Zeitfenster bis,Standzeit",
    "Spanish": "Nombre,Latitud,Longitud,Cantidad,from,to,service",
}


def written(folder: Path, text: str) -> Path:
    (path := folder / "customers.csv").write_text(text)
    return path


def planned(header: str) -> str:
    return f"{header}\n{DEPOT},,,\n{ANNA},08:00,10:00,10\n{BERT},09:00,12:00,0:15\n"


@pytest.mark.parametrize("span", HOURS)
def test_hours_are_read_as_people_write_them(tmp_path, span):
    assert read_table(written(tmp_path, hours(span))).others["windows"][0] == HOURS[span]


@pytest.mark.parametrize("span", ["8am-12pm", "8-12", "0800-1200"])
def test_tours_have_times_of_day_where_hours_do(tmp_path, span):
    path = written(tmp_path, hours(span))
    answer = {"routes": [[1, 2]], "arrivals": [[465.0, 480.0, 510.0, 540.0]], "unit": "km"}
    table, _ = write_routes(path, answer, "mine")
    assert [line.rsplit(",", 1)[1] for line in table.read_text().splitlines()] == [
        "time",
        "7:45",
        "8:00",
        "8:30",
        "9:00",
    ]


@pytest.mark.parametrize("span", NO_HOURS)
def test_hours_with_two_readings_or_none_are_refused(tmp_path, span):
    with pytest.raises(UserError, match=r"row 3: (hours are|open is|close is) .*; type "):
        read_table(written(tmp_path, hours(span)))


@pytest.mark.parametrize("given", TIMES)
def test_times_are_read_as_people_write_them(tmp_path, given):
    assert read_table(written(tmp_path, times(*given))).others["windows"][0] == TIMES[given]


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_be_misread_is_refused_with_what_to_type(tmp_path, name):
    text, said = REFUSED[name]
    with pytest.raises(UserError) as caught:
        read_table(written(tmp_path, text))
    assert said in str(caught.value)


def test_numbers_that_are_what_they_say_are_read(tmp_path):
    near = f"{HEAD}\nDepot,0,0,0\nAnna,0.5,0.2,4\nBert,0.1,0.3,7\n"
    assert read_table(written(tmp_path, near)).places[0].tolist() == [0, 0]
    plane = "name,x,y,demand,open,close\nDepot,0,0,0,0,12\nAnna,900,2,4,3,8\nBert,1,3,7,0,2000\n"
    assert read_table(written(tmp_path, plane)).others["windows"] == [(3, 8), (0, 2000)]
    kilograms = "name;x;y;demand\nDepot;5;5;0\nA;1;2;1.200\nB;3;4;12\n"
    assert read_table(written(tmp_path, kilograms)).demands == [0, 1.2, 12]


@pytest.mark.parametrize("name", PLANNERS)
def test_the_templates_of_planners_are_read_whole(tmp_path, name):
    table = read_table(written(tmp_path, planned(PLANNERS[name])))
    assert table.others["windows"] == [(480, 600), (540, 720)]
    assert table.others["service_times"] == [10, 15]
    assert "not used" not in table.found


def test_a_table_with_tabs_may_be_called_tsv(tmp_path):
    (tmp_path / "stops.tsv").write_text("\n".join([HEAD, DEPOT, ANNA, BERT]).replace(",", "\t"))
    assert read_table(tmp_path / "stops.tsv").demands == [0, 4, 7]


@pytest.mark.parametrize("mark", ["warehouse", "Lager", "Almacén", "hub"])
def test_a_depot_in_the_last_row_is_known_by_its_type(tmp_path, mark):
    text = f"{HEAD},type\nAnna,52.536,13.199,,customer\n{BERT},customer\nYard,52.52,13.405,0,{mark}\n"
    with pytest.raises(UserError, match=r"row 2: demand is empty"):  # of a customer, no longer of a depot
        read_table(written(tmp_path, text))
    assert read_table(written(tmp_path, text.replace(",,customer", ",4,customer"))).names == ["Yard", "Anna", "Bert"]


def by_page(texts: list[str]) -> list:
    command = ["node", "-e", PAGE, str(browser.FOLDER / "routes.js")]
    done = subprocess.run(command, input=json.dumps(texts), capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow  # needs node
def test_a_customer_called_depot_is_one_where_another_row_is_marked(tmp_path):
    text = f"{HEAD},type\nYard,52.52,13.405,0,hub\n{ANNA},\nDepot,52.39,13.06,7,\n"
    assert read_table(written(tmp_path, text)).demands == [0, 4, 7]
    (found,) = by_page([text])
    assert len(found["hours"]) == 2


@pytest.mark.slow  # needs node
def test_the_page_reads_and_refuses_the_same():
    texts = [*map(hours, HOURS), *(times(*each) for each in TIMES), *map(planned, PLANNERS.values())]
    texts += [*map(hours, NO_HOURS), *(text for text, _ in REFUSED.values())]
    found = by_page(texts)
    windows = [list(each) for each in (*HOURS.values(), *TIMES.values())]
    assert [each["hours"][0] for each in found[: len(windows)]] == windows
    planners = found[len(windows) : len(windows) + len(PLANNERS)]
    assert [each["hours"] for each in planners] == [[[480, 600], [540, 720]]] * len(PLANNERS)
    assert [each["service"] for each in planners] == [[10, 15]] * len(PLANNERS)
    refused = found[len(windows) + len(PLANNERS) :]
    for (name, (_, said)), message in zip(REFUSED.items(), refused[len(NO_HOURS) :], strict=True):
        assert said in message, name
    assert all(isinstance(message, str) for message in refused)
