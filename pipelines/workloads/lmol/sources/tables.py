"""A user's CSV of images and scores, or of labelled pairs: found, read and checked, without opening an image."""

import csv
import difflib
import io
from dataclasses import dataclass, field
from pathlib import Path

from common.errors import UserError
from models.ranking import FIRST, SECOND, SIMILAR
from pipelines.workloads.lmol.sources.units import LabelledPair, number

EMBEDDED = ("digits", "photos")
WAYS = "give digits, photos, a folder of images with a CSV of image,score, or a CSV of img1,img2,score1,score2,label"
LABELS = {"first": FIRST, "second": SECOND, "similar": SIMILAR}
PAIR_COLUMNS = ("img1", "img2", "score1", "score2", "label")
IMAGE_COLUMNS = ("image", "score")


@dataclass
class Listed:
    """The images that a CSV lists."""

    scores: dict[str, str] = field(default_factory=dict)  # as written, by the image's name
    groups: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)  # reason by name
    pairs: list[LabelledPair] = field(default_factory=list)
    repeated: int = 0

    def add(self, name: str, score: str) -> None:
        """Note an image's score; a score that is not a number, or a second, different one makes the image unusable."""
        if number(score) is None:
            self.refused[name] = f"its score is {score!r}, which is not a number"
        elif name in self.scores and number(self.scores[name]) != number(score):
            self.refused[name] = f"it has the scores {self.scores[name]} and {score}"
        self.scores.setdefault(name, score)


def find_table(source: str) -> Path:
    """Return the CSV of `data.source`, which is either a CSV or a folder with one in it."""
    path = Path(source)
    if path.is_dir():
        tables = sorted(each for each in path.iterdir() if each.suffix.lower() == ".csv")
        if len(tables) != 1:
            found = f"has {len(tables)}: {', '.join(each.name for each in tables[:5])}" if tables else "has none"
            raise UserError(
                f"data.source={source}: the folder of images must contain exactly one CSV, of image,score; it {found}"
                + ("; name the one to use, as in data.source=" + str(tables[0]) if tables else "")
            )
        return tables[0]
    if not path.is_file():
        near = difflib.get_close_matches(source, EMBEDDED, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise UserError(f"data.source={source}: there is no such file or folder{hint}; {WAYS}")
    return path


def inputs(table: Path) -> list[Path]:
    """Return the CSV and the files of the images it lists, as far as they exist."""
    found = []
    for name in read_table(table).scores:
        try:
            path = within(table.parent, name)
        except ValueError:
            continue
        found += [path] if path.is_file() else []
    return [table, *found]


def read_table(table: Path) -> Listed:
    """Return the images that the CSV lists; UserError if its columns or its labels make no sense."""
    columns, rows = _rows(table)
    listed = Listed()
    if set(columns) == set(PAIR_COLUMNS):
        for line, row in rows:
            label = LABELS.get(row["label"].rstrip(".").lower())
            if label is None:
                raise UserError(
                    f"{table}, line {line}: the label is {row['label']!r}; it must be First (img1 ranks higher), "
                    "Second or Similar"
                )
            listed.add(row["img1"], row["score1"])
            listed.add(row["img2"], row["score2"])
            listed.pairs.append((line, row["img1"], row["img2"], label))
    elif set(IMAGE_COLUMNS) <= set(columns) <= {*IMAGE_COLUMNS, "group"}:
        for _, row in rows:
            listed.repeated += row["image"] in listed.scores
            listed.add(row["image"], row["score"])
            listed.groups.setdefault(row["image"], row.get("group", ""))
    else:
        found = f"the columns {', '.join(columns)}" if columns else "no columns, as it is an empty file"
        raise UserError(
            f"{table} has {found}; it must have image,score, and group if some images belong together; or "
            f"{','.join(PAIR_COLUMNS)}"
        )
    if not listed.scores:
        raise UserError(f"{table} lists no image; {WAYS}")
    for name in listed.refused:
        del listed.scores[name]
    return listed


def _rows(table: Path) -> tuple[list[str], list[tuple[int, dict[str, str]]]]:
    """Return the columns of a CSV, and (line, {column: value}) for each of its rows."""
    try:
        text = table.read_text(encoding="utf-8-sig")
        reader = csv.reader(io.StringIO(text, newline=""), strict=True)
        columns = [column.strip() for column in next(reader, [])]
        rows = [(reader.line_num, [value.strip() for value in row]) for row in reader if row]
    except UnicodeDecodeError as error:
        raise UserError(f"{table} is not UTF-8 (byte {error.start}); save it as CSV in UTF-8") from error
    except OSError as error:
        raise UserError(f"cannot read {table}: {error.strerror}") from error
    except csv.Error as error:
        raise UserError(f"{table}, line {reader.line_num}: this is not CSV: {error}") from error
    wrong = next(((line, row) for line, row in rows if len(row) != len(columns)), None)
    if wrong or len(set(columns)) < len(columns):
        raise UserError(
            f"{table}: the header names {len(columns)} columns ({', '.join(columns)})"
            + (f", but line {wrong[0]} has {len(wrong[1])} values" if wrong else ", one of them twice")
        )
    return columns, [(line, dict(zip(columns, row, strict=True))) for line, row in rows]


def within(folder: Path, name: str) -> Path:
    """Return the path of the image called `name` in a CSV of `folder`; ValueError if it lies elsewhere."""
    path = folder / name
    if not name or "\0" in name or not path.resolve().is_relative_to(folder.resolve()):
        raise ValueError(f"not below {folder}, the folder of the CSV")
    return path
