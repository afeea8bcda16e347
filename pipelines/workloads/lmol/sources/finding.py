"""The table of a user's images: found in their folder, one folder above, or made of a folder per rank.

For several attributes it has a column of scores each, or a column that names the attribute of each row.
"""

import contextlib
import difflib
import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path

from common.errors import UserError
from models.images.inputs import ENDINGS, folded, visible_in
from pipelines.workloads.lmol.sources import packed
from pipelines.workloads.lmol.sources.columns import LONGEST_HEADER, USUAL, WHOLE, layout_of, lists_in, plain, rows_of
from pipelines.workloads.lmol.sources.scores import SCALE, number
from pipelines.workloads.lmol.sources.tables import EMBEDDED, WAYS, Listed, Rows, home, ranks, read_table, within

TABLES = (".csv", ".tsv", *WHOLE)  # and lists in .txt
# Kinds of table: answers about pairs, scores, `ask.py`'s ranking and its pairs to label, and others.
ANSWERS, SCORES, RANKING, UNLABELLED, UNKNOWN = "answers", "scores", "ranking", "unlabelled", "unknown"
Wanted = Sequence[str] | str | None  # data.attributes, else data.attribute


def find_table(source: str, columns: Mapping[str, str], attributes: Wanted = ()) -> Path:
    """Return the table of `data.source`: itself, one in the folder or above it, or a folder with a folder per rank."""
    columns = {**columns, "score": attributes[0]} if attributes and not isinstance(attributes, str) else columns
    path = Path(source)
    if path.is_dir():
        kinds = {each: kind_of(each, columns) for each in _tables(path)}
        tables = [each for each, kind in kinds.items() if kind in (ANSWERS, SCORES)]
        of_ranks = ranks(path)
        if not tables and not (of_ranks and all(of_ranks.values())):  # some data sets keep tables in a subfolder
            inner = (table for each in sorted(path.iterdir()) if each.is_dir() for table in _tables(each))
            tables = [table for table in inner if kind_of(table, columns) in (ANSWERS, SCORES)]
        if not tables and of_ranks and (all(of_ranks.values()) or not kinds):
            return path
        tables = tables or [each for each in _above(path, columns) if kind_of(each, columns) in (ANSWERS, SCORES)]
        for last in (RANKING, UNLABELLED, UNKNOWN):
            tables = tables or [each for each, kind in kinds.items() if kind == last]
        if len(tables) != 1:
            most = max(tables, key=lambda each: each.stat().st_size, default=None)
            found = f"has {_named(tables)}; name the one to use, as in data.source={most}" if tables else "has none"
            one = "exactly one CSV, of image,score or of pairs, or a folder per rank"
            raise UserError(f"data.source={source}: the folder of images must contain {one}; it {found}")
        return tables[0]
    if not path.is_file():
        near = difflib.get_close_matches(source, EMBEDDED, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise UserError(f"data.source={source}: there is no such file or folder{hint}; {WAYS}")
    return path


def find_answers(source: Path, columns: Mapping[str, str] | None) -> tuple[Path | None, list[str]]:
    """Return the table of answers about pairs, None if there is none, and notes on unknown tables.

    It is the file itself, or in the folder, or one folder above if it has answers about the folder's images.
    """
    if not source.is_dir():
        return source, []
    tables = [each for each in _tables(source) if kind_of(each, columns) == ANSWERS]
    tables = tables or [each for each in _above(source, columns) if kind_of(each, columns) == ANSWERS]
    if len(tables) > 1:
        one = f"put their rows into one, or name the one to use, as in {tables[0]}"
        raise UserError(f"{source} has tables of answers, {_named(tables)}; {one}")
    images = {path.name for path in visible_in(source) if path.suffix.lower() in ENDINGS}
    beside = [*_tables(source), *(each for each in _tables(_parent(source)) if _mentions(each, images))]
    unknown = (layout_of(each, None)[2] for each in beside if each not in tables)
    return tables[0] if tables else None, [f"passed over: {why}" for why in unknown if why]


def kind_of(table: Path, columns: Mapping[str, str] | None) -> str:
    """Return the kind of a table, by its header and whether a pair has a label."""
    layout, used, _ = layout_of(table, columns)
    if layout in ("choices", "scored pairs"):
        return ANSWERS if layout == "choices" else SCORES
    if layout == "pairs":
        return ANSWERS if any(row[used["label"]] for _, row in rows_of(table)[1]) else UNLABELLED
    return UNKNOWN if not layout else RANKING if {"low", "high"} <= set(rows_of(table)[0]) else SCORES


def files_of(source: str, columns: Mapping[str, str], attributes: Wanted = ()) -> list[Path]:
    """Return a user's files behind `data.source`: the table, and those of its images that exist."""
    if source in EMBEDDED or not Path(source).exists():
        return []
    if of_data_set := packed.files(Path(source)):
        return of_data_set
    table, found = find_table(source, columns, attributes), []
    root = home(table, Path(source))
    each = by_attribute(table, columns, attributes, root)
    for name in dict.fromkeys(name for listed in each for name in listed.scores):
        with contextlib.suppress(ValueError):  # of an image outside the folder
            found += [path] if (path := within(root, name)).is_file() else []
    return [*(lists_in(table) if table.is_dir() else [table]), *found]


def _named(tables: Sequence[Path]) -> str:
    return f"{len(tables)}: {', '.join(each.name for each in tables[:5])}"


def _tables(folder: Path) -> list[Path]:
    lists = lists_in(folder)
    files = {each: each.suffix.lower() for each in folder.iterdir() if each.is_file() and each not in lists[1:]}
    found = sorted(each for each, end in files.items() if end in TABLES or (end == ".txt" and layout_of(each, None)[0]))
    return [folder if len(lists) > 1 and each == lists[0] else each for each in found]


def _parent(folder: Path) -> Path:
    return folder.parent if folder.name not in ("", "..") else folder.resolve().parent


def _above(folder: Path, columns: Mapping[str, str] | None) -> list[Path]:
    """Return the tables one folder above that list an image in the folder."""
    found, inside = [], folder.resolve()
    for table in _tables(_parent(folder)):
        with contextlib.suppress(UserError):  # of a table of something else
            names = read_table(table, columns).scores
            if any((home(table) / name).resolve().is_relative_to(inside) for name in names if "\0" not in name):
                found.append(table)
    return found


def _mentions(table: Path, images: AbstractSet[str]) -> bool:
    """Return True if the name of an image is in the first lines of a table, whatever its columns."""
    with (lists_in(table)[0] if table.is_dir() else table).open(encoding="utf-8-sig", errors="replace") as file:
        cells = re.split(r"[,;\t|\n/\\\"]", file.read(LONGEST_HEADER))
    return any(cell.strip() in images for cell in cells)


def by_attribute(
    table: Path, columns: Mapping[str, str] | None, attributes: Wanted, root: Path | None = None, rows: Rows = ()
) -> list[Listed]:
    """Return what `read_table` lists for each attribute, or for the only one if none is named.

    An image without a score in an attribute is not listed for it. UserError for an unknown attribute.
    """
    word, named = (attributes, ()) if isinstance(attributes, str) else (None, attributes or ())
    if table.is_dir() and not rows and not lists_in(table):
        if not named:
            return [read_table(table, columns, root)]
        raise UserError(f"data.attributes: {table} has a folder per rank, of one attribute; leave data.attributes out")
    header, rows = (list(rows[0][1]), rows) if rows else rows_of(table)
    given = columns or {}
    about = next((name for name in header if plain(name) == "attribute" and name not in named), "")
    spread = {name for name in header if plain(name) in USUAL["std"]} - {*given.values()}
    usual = next((name for each in USUAL["score"] for name in header if plain(name) == each), None)

    def column_of(name: str) -> str:
        """Return the column of scores with this name, else one with the same folded name; "" if there is none."""
        alike = [each for each in header if folded(each) == folded(name) and each not in given.values()]
        likely = [each for each in alike if (each == name and not word) or _holds_scores(each, rows)]
        return min(likely, key=lambda each: each != name, default="")

    # A word names a column of scores, or the attribute of some rows, or else merely the table's scores.
    if word and "score" not in given:
        spoken = any(about and folded(row[about]) == folded(word) for _, row in rows)
        named = [word] if spoken or column_of(word) else []
    if not named:
        kinds = sorted({folded(row[about]): row[about] for _, row in rows if about and row[about]}.values())
        if len(kinds) > 1:
            each = f"data.attribute={kinds[0]}, or in training data.attributes=[{','.join(kinds)}]"
            raise UserError(f"{table}: the column {about} has rows about {len(kinds)} attributes; give {each}")
        return [read_table(table, columns, root, rows)]
    found, columns_of = [], {name: column_of(name) for name in named}
    for name, column in columns_of.items():
        if column:
            # Leave out other attributes, and the deviations of the usual scores.
            other = {*columns_of.values()} - {column} | (set() if word and usual in (column, None) else spread)
            own = [(n, {k: v for k, v in row.items() if k not in other}) for n, row in rows if row[column] or word]
        else:
            its = [(line, row) for line, row in rows if about and folded(row[about]) == folded(name)]
            own = [(line, {k: v for k, v in row.items() if k != about}) for line, row in its]
        if not own:
            also = f", and no row whose {about} is that" if about else ""
            raise UserError(f"data.attributes: {table} has no score in {name!r}{also}; it has {', '.join(header)}")
        found.append(read_table(table, {**given, **({"score": column} if column else {})}, root, own))
    return found


def _holds_scores(name: str, rows: Rows) -> bool:
    """Return True for a column with numbers whose name is not a usual one for anything but scores."""
    others = {each for holds, names in USUAL.items() if holds != "score" for each in names}
    cells = (SCALE.sub("", row[name]).replace(",", ".") for _, row in rows)
    return plain(name) not in others and any(number(cell) is not None for cell in cells)
