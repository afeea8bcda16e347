"""Answers as a table for spreadsheets: a row for each answer, or for each image of a ranking."""

from collections.abc import Mapping, Sequence
from typing import TypeGuard

from common.foreign_text import to_csv

FLAT = (str, int, float, type(None))


class Table:
    """Rows with the union of their columns; what is nested deeper has no column."""

    def __init__(self) -> None:
        self.rows: list[dict[str, object]] = []
        self.left_out: dict[str, None] = {}  # names of nested parts, in order

    def add(self, source: str, answer: Mapping[str, object]) -> None:
        """Add an answer: its plain values, else the entries of its lists, which are numbered by rank."""
        flat = self._flat(answer)
        lists = {} if flat else {name: part for name, part in answer.items() if _is_list_of_objects(part)}
        deeper = (name for name, part in answer.items() if name not in lists and not _columns(name, part))
        self.left_out |= dict.fromkeys(deeper)
        if flat:
            self.rows.append({"source": source, **flat})
        for name, entries in lists.items():
            for rank, entry in enumerate(entries, 1):
                number = {} if name == "errors" else {"rank": rank}
                self.rows.append({"source": source, **number, **self._flat(entry)})

    def text(self) -> str:
        """Return the table as CSV."""
        columns = list(dict.fromkeys(name for row in self.rows for name in row))
        return to_csv(columns, ([row.get(name, "") for name in columns] for row in self.rows))

    def _flat(self, answer: Mapping[str, object]) -> dict[str, object]:
        return {name: value for part in answer for name, value in _columns(part, answer[part]).items()}


def _columns(name: str, value: object) -> dict[str, object]:
    """Return the columns of a part of an answer: itself, or NAME.KEY of an object of plain values; {} for others."""
    if isinstance(value, FLAT):
        return {name: value}
    if isinstance(value, Mapping) and all(isinstance(each, FLAT) for each in value.values()):
        return {f"{name}.{key}": each for key, each in value.items()}
    return {}


def _is_list_of_objects(part: object) -> TypeGuard[Sequence[Mapping[str, object]]]:
    return isinstance(part, list) and all(isinstance(entry, Mapping) for entry in part)
