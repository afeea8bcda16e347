"""Inputs as people have them, each put through the command they would type: read, or named with the reason."""

import json
import math
import os
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import datasets
import docx
import openpyxl
import pyarrow
import pytest
from PIL import Image
from pyarrow import parquet

from pipelines.workloads.tinystories.generated_stories import generate
from tests.stages import stage
from tests.workloads.bep.firm import prose

PLACES = [(13.405, 52.52, 0), (13.199, 52.536, 4), (13.0645, 52.3906, 7), (13.587, 52.679, 3), (13.287, 52.588, 5)]
PLANS = ("tower.docx", "school.odt", "bridge.rtf", "station.html")
HOUR, BEGIN = 3_600_000, 1_735_689_600_000  # ms


def rows(scale: float = 1.0) -> list[tuple[float, ...]]:
    """Customers in a table's rows, the depot first."""
    return [(round(x * scale, 4), round(y * scale, 4), demand) for x, y, demand in PLACES]


def table(columns: str, scale: float = 1.0) -> str:
    return "\n".join([columns, *(",".join(map(str, row)) for row in rows(scale))]) + "\n"


def plane(folder: Path) -> None:
    (folder / "customers.csv").write_text(table("x,y,demand", 100))


def degrees(folder: Path) -> None:
    names = [
        "Name;Longitude;Latitude;Menge",
        *(f"Müller {place};{x};{y};{q}" for place, (x, y, q) in enumerate(rows())),
    ]
    (folder / "customers.csv").write_bytes("\r\n".join(names).replace(".", ",").encode("cp1252"))  # as Excel saves it


def workbook(folder: Path) -> None:
    book = openpyxl.Workbook()
    for row in [("lng", "lat", "weight"), *rows()]:
        book.active.append(row)
    book.save(folder / "customers.xlsx")


def torn_workbook(folder: Path) -> None:
    workbook(folder)
    whole = (folder / "customers.xlsx").read_bytes()
    (folder / "customers.xlsx").write_bytes(whole[: len(whole) // 2])


def geojson(folder: Path) -> None:
    features = [
        {"type": "Feature", "geometry": {"type": "Point", "coordinates": [x, y]}, "properties": {"demand": demand}}
        for x, y, demand in PLACES
    ]
    (folder / "customers.geojson").write_text(json.dumps({"type": "FeatureCollection", "features": features}))


def lines(folder: Path) -> None:
    depot, *customers = PLACES
    problem = {
        "depot": depot[:2],
        "customers": [place[:2] for place in customers],
        "demands": [place[2] for place in customers],
        "capacity": 12,
        "degrees": True,
    }
    (folder / "days.jsonl").write_text(f"{json.dumps(problem)}\n{json.dumps(problem)}\n")


def candles(count: int = 300, unit: int = 1) -> list[list[float]]:
    """Candles of 15 minutes: time, open, high, low, close, volume."""
    closes = [100 + math.sin(number / 7) for number in range(count + 1)]
    return [
        [(BEGIN + number * HOUR // 4) // unit, was, max(was, now) + 0.1, min(was, now) - 0.1, now, 5 + number % 3]
        for number, (was, now) in enumerate(pairwise(closes))
    ]


def candle_csv(path: Path, header: str, unit: int = 1, missing: int = -1) -> None:
    rows = [",".join(map(str, row)) for number, row in enumerate(candles(unit=unit)) if number != missing]
    text = [header, *rows] if header else rows
    path.write_text("\n".join(text) + "\n")


def two_exports(folder: Path) -> None:
    candle_csv(folder / "BTCUSDT_15m.csv", "")
    heading = "https://www.CryptoDataDownload.com\ndate,open,high,low,close,volume"
    candle_csv(folder / "ETH-USDT 15m export.csv", heading, unit=1000, missing=20)


def binance(folder: Path) -> None:
    candle_csv(folder / "BTCUSDT-15m-2025-01.csv", "Open time,Open,High,Low,Close,Volume")


def freqtrade(folder: Path) -> None:
    (folder / "SOL_USDT-15m.json").write_text(json.dumps(candles()))


def h5_among_them(folder: Path) -> None:
    binance(folder)
    (folder / "ADA_USDT-15m.h5").write_bytes(b"\x89HDF\r\n\x1a\n")


def h5_alone(folder: Path) -> None:
    (folder / "ADA_USDT-15m.h5").write_bytes(b"\x89HDF\r\n\x1a\n")


def stories(folder: Path) -> None:
    told = list(generate(0, 60_000))
    half = len(told) // 2
    told[0] = f"“Once” upon a café. {told[0]}"
    (folder / "evenings.txt").write_text("\n<|endoftext|>\n".join(told[:half]), "cp1252")
    parquet.write_table(pyarrow.table({"text": told[half:]}), folder / "train-00000.parquet")
    (folder / "README.md").write_text("# Stories\n")


def saved_to_disk(folder: Path) -> None:
    datasets.Dataset.from_dict({"text": list(generate(0, 60_000))}).save_to_disk(folder / "saved")


def plans(folder: Path) -> None:
    word = docx.Document()
    for seed in range(3):
        word.add_paragraph(prose(seed, 2500))
    word.save(folder / "tower.docx")
    with zipfile.ZipFile(folder / "school.odt", "w") as archive:
        archive.writestr("mimetype", "application/vnd.oasis.opendocument.text")
        space = "urn:oasis:names:tc:opendocument:xmlns:"
        body = "".join(f"<text:p>{line}</text:p>" for line in prose(3, 7000).splitlines())
        archive.writestr(
            "content.xml",
            f'<office:document-content xmlns:office="{space}office:1.0" xmlns:text="{space}text:1.0">'
            f"<office:body><office:text>{body}</office:text></office:body></office:document-content>",
        )
    (folder / "bridge.rtf").write_text(r"{\rtf1\ansi " + prose(4, 7000).replace("\n", "\\par\n") + "}")
    paragraphs = "".join(f"<p>{line}</p>" for line in prose(5, 7000).splitlines())
    (folder / "station.html").write_text(f"<html><body>{paragraphs}</body></html>")
    picture(folder / "site.png", 90)


def slides_alone(folder: Path) -> None:
    (folder / "kick-off.pptx").write_bytes(b"PK\x03\x04")
    picture(folder / "site.jpg", 90)


def picture(path: Path, level: int) -> None:
    Image.new("L", (16, 16), level).save(path)


def pictures(folder: Path) -> None:
    (folder / "images").mkdir()
    for level in range(5):
        picture(folder / f"images/{level}.png", 50 * level)


def votes_above(folder: Path) -> None:
    pictures(folder)
    votes = [rf"images\{level + 1}.png,.\images\{level}.png" for level in range(4)]  # as Windows writes paths
    (folder / "votes.csv").write_text("\n".join(["winner,loser", *votes * 3]), "utf-8-sig")


def heic(folder: Path) -> None:
    pictures(folder)
    (folder / "images/phone.HEIC").write_bytes(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic")
    without = folder / "without"
    without.mkdir()
    (without / "pillow_heif.py").write_text("raise ModuleNotFoundError('no such module', name='pillow_heif')\n")


def strange_votes(folder: Path) -> None:
    pictures(folder)
    (folder / "images/votes.csv").write_text("winner,loser\nnobody.png,nothing.png\n")


def notes_alone(folder: Path) -> None:
    (folder / "notes.pages").write_text("?")
    (folder / "list.numbers").write_text("?")


@dataclass(frozen=True)
class Case:
    """What somebody has, what they type, and what they are told."""

    made: Callable[[Path], None]
    words: tuple[str, ...]
    said: tuple[str, ...]  # on either stream
    status: int = 0
    answers: int = 0  # lines of JSON without an error


def routes(source: str) -> tuple[str, ...]:
    capacity = () if source.endswith(".jsonl") else ("capacity=12",)
    return ("predict.py", "--workload", "cvrp", source, *capacity, "starts=1", "augment=false", "milliseconds=0")


def signals(source: str) -> tuple[str, ...]:
    return ("predict.py", "--workload", "crypto", source, "now=newest")


def prepared(workload: str, source: str) -> tuple[str, ...]:
    few = ("model.vocabulary=160", "data.passage_characters=500") if workload == "tinystories" else ()
    return ("prepare.py", "--workload", workload, f"data.{source}", *few)


def asked(source: str) -> tuple[str, ...]:
    return ("ask.py", source, "--ranking", "ranking.csv")


CASES = {
    "customers in a plane": Case(plane, routes("mine/customers.csv"), ("4 customers",), answers=1),
    "customers in degrees": Case(degrees, routes("mine/customers.csv"), ("costs are in km",), answers=1),
    "customers in a workbook": Case(workbook, routes("mine/customers.xlsx"), ("costs are in km",), answers=1),
    "customers on a map": Case(geojson, routes("mine/customers.geojson"), ("costs are in km",), answers=1),
    "customers as JSON lines": Case(lines, routes("mine/days.jsonl"), ('"unit": "km"',), answers=2),
    "a torn workbook": Case(
        torn_workbook, routes("mine/customers.xlsx"), (".xlsx: not an .xlsx file, or damaged (BadZipFile)",), 2
    ),
    "no customers at all": Case(notes_alone, routes("mine"), ("it holds .numbers (1), .pages (1)",), 2),
    "two exchanges' candles": Case(
        two_exports,
        signals("mine"),
        ('"BTCUSDT"', '"ETHUSDT"', "of 299 candles, the last 279 follow the newest gap"),
        answers=2,
    ),
    "candles of Binance": Case(binance, signals("mine"), ('"BTCUSDT"',), answers=1),
    "candles of freqtrade": Case(freqtrade, signals("mine"), ('"SOLUSDT"',), answers=1),
    "HDF5 beside candles": Case(
        h5_among_them, signals("mine"), ("passed over in mine: ADA_USDT-15m.h5: HDF5 keeps",), answers=1
    ),
    "HDF5 alone": Case(h5_alone, signals("mine"), ("ADA_USDT-15m.h5: HDF5 keeps", "no file of candles; name"), 2),
    "stories of two kinds": Case(
        stories,
        prepared("tinystories", "source=mine"),
        (".txt files: 1, .parquet files: 1, 1 converted from Windows", "of mine: 1 .md ("),
    ),
    "a saved dataset": Case(saved_to_disk, prepared("tinystories", "source=mine/saved"), ("dataset mine/saved",)),
    "no stories at all": Case(
        notes_alone, prepared("tinystories", "source=mine"), ("of mine: 1 .numbers (", "of mine: 1 .pages ("), 2
    ),
    "plans of four kinds": Case(
        plans,
        prepared("bep", "sources=mine"),
        (*(f"files.{plan}.characters" for plan in PLANS), "not read: site.png: pictures are not read"),
    ),
    "slides in place of plans": Case(
        slides_alone, prepared("bep", "sources=mine"), ("kick-off.pptx: slides", "site.jpg: pictures"), 2
    ),
    "votes above the images": Case(
        votes_above, asked("mine/votes.csv"), ("12 answers about 5 of 5 images", "ranking.csv: scores of 5 images")
    ),
    "votes about other images": Case(strange_votes, asked("mine/images"), ("none of its 1 answer is",), 2),
    "a HEIC without its package": Case(
        heic,
        ("predict.py", "--workload", "lmol", "mine/images", "--csv", "ranking.csv"),
        ("ranking.csv: 6 rows", "phone.HEIC: a HEIC image, which needs another package"),
        1,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_people_have_is_read_or_named(tmp_path, name):
    case = CASES[name]
    (tmp_path / "mine").mkdir()
    case.made(tmp_path / "mine")
    # What is in `without` is found before the installed packages.
    path = f"{tmp_path / 'mine/without'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    done = stage(tmp_path, *case.words, PYTHONPATH=path)
    said = done.stdout + done.stderr
    assert done.returncode == case.status, said
    assert "Traceback" not in said
    for text in case.said:
        assert text in said
    if case.status == 2:
        assert len(done.stderr.splitlines()) <= 6, said
        assert "error: " in done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [("error" in answer) for answer in found].count(False) == case.answers


def test_there_are_twenty():
    assert len(CASES) == 20
