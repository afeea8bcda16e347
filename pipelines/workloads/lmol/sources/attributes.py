"""Tables of several attributes: a column of scores for each, or a column that says which one a row is about."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from common.errors import UserError
from pipelines.workloads.lmol.sources.columns import USUAL, lists_in, plain, rows_of
from pipelines.workloads.lmol.sources.tables import Listed, Rows, read_table


def by_attribute(
    table: Path, columns: Mapping[str, str] | None, attributes: Sequence[str], root: Path | None = None, rows: Rows = ()
) -> list[Listed]:
    """Return what a table lists, as `read_table` does, for each attribute; once, of the only one, if none is named.

    An image without a score in one of them is not listed for it. UserError for an attribute that is not there.
    """
    if not attributes:
        return [read_table(table, columns, root, rows)]
    if table.is_dir() and not rows and not lists_in(table):
        raise UserError(f"data.attributes: {table} has a folder per rank, of one attribute; leave data.attributes out")
    header, rows = (list(rows[0][1]), rows) if rows else rows_of(table)
    about = next((name for name in header if plain(name) == "attribute" and name not in attributes), "")
    other = {name for name in header if plain(name) in USUAL["std"]} | {*attributes}  # whose spread, nobody says
    found = []
    for name in attributes:
        if name in header:
            own = [(line, {k: v for k, v in row.items() if k not in other - {name}}) for line, row in rows if row[name]]
        else:
            own = [(line, {k: v for k, v in row.items() if k != about}) for line, row in rows if row.get(about) == name]
        if not own:
            also = f", and no row whose {about} is that" if about else ""
            raise UserError(f"data.attributes: {table} has no score in {name!r}{also}; it has {', '.join(header)}")
        found.append(read_table(table, {**(columns or {}), **({"score": name} if name in header else {})}, root, own))
    return found
