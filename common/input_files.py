"""Inputs of trained models, read from files without torch, so that mistakes in a command are reported at once."""

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from common.config import Section
from common.errors import UserError
from common.foreign_text import other_encoding, printable
from common.plain import Plain


class Given(NamedTuple):
    """One input, or the reason why there is none in its place."""

    source: str  # where it comes from: a file, or a file and a line
    input: Mapping[str, object] | None
    error: str = ""
    names: Mapping[str, str] = {}  # of the input's parts: in errors -> in its source

    def in_names_of_source(self, error: str) -> str:
        """Return an error about this input with its parts named as in its source."""
        return re.sub(r"\w+ \d+", lambda found: self.names.get(found[0], found[0]), error)


@dataclass(frozen=True)
class Inputs:
    """How a workload's inputs are read, checked and answered."""

    input: type[Section]  # fields of an input, those of the models' `input_type`
    settings: type[Section]
    # Files and folders of the workload's own formats -> inputs. JSON lines are read for every workload.
    read: Callable[[Sequence[Path]], Iterator[Given]]
    line: Callable[[str], Mapping[str, object]] | None = None  # a line of text -> an input; None: it names a file
    # Fills in what users leave out of an input.
    completed: Callable[[Mapping[str, object]], Mapping[str, object]] = lambda given: given
    shared: Sequence[str] = ()  # fields that, given as words beside files, apply to every input of the files
    # Writes (file, answer, name of the run), in a format of the workload's own, beside the file.
    beside: Callable[[Path, Mapping[str, object], str], None] | None = None
    # A server's upper bounds on fields and settings: on a number, or on the length of a text or a list.
    served: Mapping[str, float] = field(default_factory=dict)
    # Batch size of a server, perhaps by settings: small, as other requests wait meanwhile.
    at_once: int | Callable[[Any], int] = 64
    example: Sequence[str] = ()  # words for a first call of predict, such as a shipped file
    # Fields of an input -> the name of the shipped model that fits it; None: the smallest one answers.
    shipped: Callable[[Mapping[str, object]], str] | None = None
    worse: Callable[[Path], str] | None = None  # a run's folder -> why the shipped model is preferred; "": it is not
    # (inputs of a request, its settings, a server's time limit in s) -> settings that keep it; UserError where none do.
    timed: Callable[[Sequence[Any], Any, float], Any] = lambda given, settings, seconds: settings
    about: Callable[[Sequence[Any]], Mapping[str, Plain]] | None = None  # models -> facts that their page needs
    # (an input, the models) -> its fields for these models, completed from files beside its source
    beside_it: Callable[[Given, Sequence[Any]], Mapping[str, object]] | None = None
    code: Callable[[Mapping[str, Mapping[str, str]]], None] | None = None  # runs the user's files that a config names
    rivals: Callable[[Any, float], Mapping[str, Plain]] | None = None  # (input, seconds) -> {method: its answer}
    # (a document's bytes, a text or None) -> the document with the text, or its own text; UserError if unusable
    document: Callable[[bytes, str | None], Mapping[str, Plain]] | None = None

    def together(self, settings: object) -> int:
        """Return a server's batch size under these settings."""
        return self.at_once if isinstance(self.at_once, int) else self.at_once(settings)


def each_file(
    paths: Sequence[Path], endings: Sequence[str], read: Callable[[Path], Iterable[tuple[str, Mapping[str, object]]]]
) -> Iterator[Given]:
    """Yield the inputs that `read` finds in files, or folders' files with these `endings`; an error per bad file."""
    for path in paths:
        try:
            files = files_in(path, endings)
        except (UserError, OSError) as error:
            yield Given(str(path), None, str(error))
            continue
        for file in files:
            source = None
            try:
                for source, found in read(file):
                    yield Given(source, found)
                if source is None:
                    raise UserError(f"{file}: there is no input in this file")
            except (UserError, OSError) as error:
                yield Given(str(file), None, str(error))


def files_in(path: Path, endings: Sequence[str]) -> list[Path]:
    """Return `path`, or its files with these `endings`, else UserError; other files are counted on stderr."""
    if not path.is_dir():
        if not path.is_file():
            raise UserError(f"{path}: there is no such file or folder")
        return [path]
    there = [each for each in sorted(path.iterdir()) if not each.name.startswith(".")]
    found = [each for each in there if each.name.lower().endswith(tuple(endings)) and each.is_file()]
    kinds = {each: printable(each.suffix.lower(), 20) or "without an ending" for each in {*there} - {*found}}
    others = Counter("folder" if each.is_dir() else kind for each, kind in kinds.items())
    passed_over = ", ".join(f"{kind} ({number})" for kind, number in sorted(others.items()))
    if not found:
        what = f"; it holds {passed_over}" if passed_over else ""
        raise UserError(f"{path}: this folder holds no file that ends in {' or '.join(endings)}{what}")
    if passed_over:
        read = ", ".join(endings[:4]) + (" and the like" if len(endings) > 4 else "")
        print(f"{path}: passed over {passed_over}; what is read: {read}", file=sys.stderr)
    return found


def prompt(text: str) -> Mapping[str, Plain]:
    """Return a line as text to continue."""
    return {"prompt": text}


def lines_of(path: Path, line: Callable[[str], Mapping[str, object]]) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Yield (file and line number, input) for each line of a text file that is not blank."""
    with path.open(encoding=other_encoding(path) or "utf-8-sig", errors="replace") as file:
        if path.suffix.lower() == ".json" or "\0" in file.read(1 << 16):
            raise UserError(f"{path}: not lines of text; save them as .txt, or JSON objects, one a line, as .jsonl")
        file.seek(0)
        for number, text in enumerate(file, 1):
            if text.strip():
                yield f"{path}:{number}", {"item": number - 1, **line(text.rstrip("\n"))}
