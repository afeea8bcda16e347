"""Apply a trained model to new inputs: a line of JSON for each.

    python pipelines/predict.py --workload cvrp --name cvrp-20 my_instances.vrp
    python pipelines/predict.py --workload tinystories prompt="Once upon a time"
    python pipelines/predict.py --workload bep --stream field=projectScope
    python pipelines/predict.py --workload crypto candles/ now=newest
    python pipelines/predict.py --workload lmol folder/ --csv ranking.csv

Without --name, the workload's newest run answers, else the model that ships
with the project; a line says which.

An INPUT is a file in one of the workload's formats, a folder of such files, or
a file of JSON lines (.jsonl, .ndjson). Without any, inputs are read from the
pipe, one per line: a JSON object, else a prompt for text models, a file name
for others. Words key=value are settings, or the fields of one input. An
unusable input gets an error in place of its answer; the others are answered.

Exit status: 0 done; 1 some inputs of a folder, a pipe or a file of lines were
unusable; 2 all were, or one that you named was, or another mistake that you
can fix, reported in a few lines.
"""

import json
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import NamedTuple

sys.path[0] = str(Path(__file__).resolve().parents[1])  # replaced: names in pipelines/ would shadow libraries

from common.config.option_parser import Parser
from common.disk import files
from common.errors import UserError
from common.foreign_text import to_csv
from common.input_files import Given
from common.workers import batched
from pipelines import arguments, exits, workloads
from pipelines.answers import command_inputs, trained

FLAT = (str, int, float, type(None))  # values that a cell can hold


class Outcome(NamedTuple):
    """The outcome of an input."""

    usable: bool
    error: str  # also of a usable input's parts; "": none
    failed: Collection[str] = ()  # names of the input or of its parts


def main() -> None:
    """Run the command."""
    known = parser()
    args = known.completing(arguments.complete).parse_intermixed_args()
    if args.help:
        further = command_inputs.described(workloads.inputs(args.workload)) if args.workload else ()
        arguments.show(known.format_help().rstrip() + "\n".join(f"\n\n{head}\n\n{text}" for head, text in further))
    if not args.workload:
        raise UserError(f"--workload is missing; give one of {', '.join(workloads.names())}")
    inputs = workloads.inputs(args.workload)
    paths, settings, fields = command_inputs.sorted_out(args.words, inputs)
    if args.csv and (args.stream or not args.csv.parent.is_dir()):
        raise UserError(f"--csv {args.csv}: {'leave out --stream' if args.stream else 'there is no such folder'}")
    if args.csv and (args.csv.resolve() in map(Path.resolve, paths) or not replaceable(args.csv)):
        other = "this is a folder, an input, or a file other than answers"
        raise UserError(f"--csv {args.csv}: {other}; give a new one, as in --csv answers.csv")
    pipe = None if sys.stdin is None or sys.stdin.isatty() else sys.stdin.buffer
    if not paths and not fields and pipe is None:
        raise UserError("no input: give files, folders, key=value words or a pipe; see --help")
    model = trained.find(args.workload, args.name, args.model, args.device)
    arguments.end_quietly()
    given = command_inputs.given(paths, fields, inputs, pipe)
    at_once = 64 if paths and command_inputs.PIPE not in paths else 1
    table = Table() if args.csv else None
    found = list(_text(model, given, settings) if args.stream else _answers(model, given, settings, at_once, table))
    if args.csv and table:
        files.write_text(args.csv, table.text())
        left_out = f"; left out, as a cell cannot hold them: {', '.join(table.left_out)}" if table.left_out else ""
        print(f"{args.csv}: {len(table.rows)} rows{left_out}")
        for note, count in Counter(str(row["note"]) for row in table.rows if row.get("note")).items():
            print(f"{count} of {len(table.rows)} rows: {note}")
    errors = [each.error for each in found if each.error]
    if len(found) == 1 and not found[0].usable:
        raise UserError(errors[0])
    if errors:
        many = f"{len(errors)} inputs" if len(errors) > 1 else "1 input"
        print(f"{many} could not be used, or only in part; the first: {errors[0]}", file=sys.stderr)
    if not any(each.usable for each in found):
        none = f"there is no input{' in ' * bool(paths)}{', '.join(map(str, paths))}"
        raise UserError("nothing could be answered" if errors else f"{none}; see --help for inputs that are read")
    named = {command_inputs.FIELDS, *map(str, paths)}
    if errors:
        sys.exit(2 if any(not named.isdisjoint(each.failed) for each in found) else 1)


def parser() -> Parser:
    """Return the parser of this command."""
    made = Parser(
        prog="python pipelines/predict.py",
        description=__doc__,
        add_help=False,
        usage="%(prog)s --workload W [options] INPUT... [key=value]",
    )
    add = made.add_argument
    add("--workload", metavar="W", help=f"one of {', '.join(workloads.names())}, or your workload's folder")
    one = made.add_mutually_exclusive_group().add_argument
    one("--name", metavar="N", help="a run, RUN/MEMBER of a run of many models, or a model that ships; the newest run")
    one("--model", type=Path, metavar="FOLDER", help="a folder with a model, such as an export, instead of a run")
    add("words", nargs="*", metavar="INPUT or key=value", help="inputs, their fields and settings")
    add("--stream", action="store_true", help="print only the text, as it is generated; text models")
    add("--csv", type=Path, metavar="FILE", help="write a table instead of JSON lines, without nested parts")
    add("--device", help="such as cpu or cuda:1; by default a GPU if there is one")
    add("-h", "--help", action="store_true", help="show this help, with --workload also input fields and settings")
    return made


def _answers(
    model: trained.Trained, given: Iterator[Given], settings: dict[str, object], at_once: int, table: "Table | None"
) -> Iterator[Outcome]:
    batches = (zip(part, model.together(part, settings), strict=True) for part in batched(given, at_once))
    for each, answer in chain.from_iterable(batches):
        if "error" in answer:
            answer = {**answer, "error": each.in_names_of_source(str(answer["error"]))}
        if table is None:
            print(json.dumps({"source": each.source, **answer}, ensure_ascii=False), flush=True)
        else:
            table.add(each.source, answer)
        if model.inputs.beside and "error" not in answer:
            model.inputs.beside(Path(each.source), answer, model.name)
        wrong = [answer] if "error" in answer else answer.get("errors", [])
        failed = {str(part.get("image", each.source)) for part in wrong}
        yield Outcome("error" not in answer, _located(each, wrong[0]["error"]) if wrong else "", failed)


def _text(model: trained.Trained, given: Iterator[Given], settings: dict[str, object]) -> Iterator[Outcome]:
    for each in given:
        try:
            for piece in model.pieces(model.asked(each), settings):
                print(piece, end="", flush=True)
            print(flush=True)
            yield Outcome(True, "")
        except UserError as error:
            print(said := _located(each, each.in_names_of_source(str(error))), file=sys.stderr)
            yield Outcome(False, said, {each.source})


def _located(given: Given, error: str) -> str:
    return error if error.startswith(given.source) else f"{given.source}: {error}"


def replaceable(path: Path) -> bool:
    """Return whether a table may replace a path: it is absent, empty, or an earlier table."""
    if not path.is_file():
        return not path.exists()
    with path.open("rb") as file:
        return file.read(7) in (b"", b"source,")


class Table:
    """Answers as rows for spreadsheets, with the union of their columns; deeper nesting is left out."""

    def __init__(self) -> None:
        self.rows: list[dict[str, object]] = []
        self.left_out: dict[str, None] = {}  # names of nested parts, in order

    def add(self, source: str, answer: Mapping[str, object]) -> None:
        """Add an answer: its plain values, else the entries of its lists, which are numbered by rank."""
        flat = self._flat(answer)
        whole = flat.keys() <= {"note"}  # a note applies to each entry of the lists
        lists = {name: part for name, part in answer.items() if whole and isinstance(part, list)}
        lists = {name: part for name, part in lists.items() if all(isinstance(entry, Mapping) for entry in part)}
        deeper = (name for name, part in answer.items() if name not in lists and not _columns(name, part))
        self.left_out |= dict.fromkeys(deeper)
        if flat and not lists:
            self.rows.append({"source": source, **flat})
        for name, entries in lists.items():
            for rank, entry in enumerate(entries, 1):
                number = {} if name == "errors" else {"rank": rank, **flat}
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


if __name__ == "__main__":
    exits.run_main(main)
