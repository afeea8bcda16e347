"""A trained run, a model folder or an export, ready to answer inputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from common.config import Section, checked
from common.errors import UserError
from common.input_files import Given, Inputs
from common.plain import Plain
from common.workers import batched
from pipelines import cli, workloads
from pipelines.run.folder import Run

if TYPE_CHECKING:
    from models.io import Model


@runtime_checkable
class Streaming(Protocol):
    """A model whose answers are text that can be had piece by piece."""

    def stream(self, given: object, **settings: object) -> Iterator[str]:
        """Yield the text of the answer. Raises ValueError for unusable settings, when called."""


@dataclass(frozen=True)
class Trained:
    """The models of a run; each input is for one of them."""

    workload: str
    name: str
    inputs: Inputs
    models: Mapping[str, Model]  # by member; a single model by the run's name

    def answers(
        self, given: Iterable[Given], settings: Mapping[str, object], at_once: int
    ) -> Iterator[tuple[Given, dict[str, Any]]]:
        """Yield each input with its answer or {"error": what is wrong}, in order.

        Up to `at_once` are answered together.
        """
        for part in batched(given, at_once):
            found: list[dict[str, Plain]] = []
            usable = []
            for each in part:
                try:
                    usable.append(self.asked(each))
                    found.append({})
                except UserError as error:
                    found.append({"error": str(error)})
            answers = iter(self.together(usable, settings))
            yield from ((each, error or next(answers)) for each, error in zip(part, found, strict=True))

    def together(self, asked: Sequence[Any], settings: Mapping[str, object]) -> list[dict[str, Plain]]:
        """Return the answers to inputs from `asked` or `read`. Raises UserError for misfit settings."""
        found: dict[int, dict[str, Plain]] = {}
        places: dict[str, list[int]] = {}
        for place, each in enumerate(asked):
            try:
                places.setdefault(self.member_for(each), []).append(place)
            except UserError as error:
                found[place] = {"error": str(error)}
        for name, own in places.items():
            try:
                answers = self.models[name].predict((asked[place] for place in own), len(own), **settings)
                found |= zip(own, answers, strict=True)
            except ValueError as error:  # settings that this machine or model cannot follow
                raise UserError(str(error)) from error
        return [found[place] for place in range(len(asked))]

    def pieces(self, asked: object, settings: Mapping[str, object]) -> Iterator[str]:
        """Yield the answer to an input from `asked` or `read` piece by piece.

        Raises UserError, when called, for misfit settings and for models that write no text.
        """
        model = self.models[self.member_for(asked)]
        if not isinstance(model, Streaming):
            raise UserError(f"{self.name} writes no text, so there is nothing to stream")
        try:
            return model.stream(asked, **settings)
        except ValueError as error:
            raise UserError(str(error)) from error

    def asked(self, given: Given) -> Section:
        """Return an input as the models take it. Raises UserError for an unusable one."""
        if given.input is None:
            raise UserError(given.error)
        return self.read(given.input)

    def read(self, given: object, files: bool = True) -> Section:
        """Return plain values as an input, completed with defaults; without `files` it may not name any.

        Raises UserError for misfits.
        """
        whole = self.inputs.completed(given) if isinstance(given, Mapping) else given
        return checked(self.inputs.input, whole, "an input", {"files": files})

    def member_for(self, asked: object) -> str:
        """Return the name of the model that takes an input: the last of several, such as the latest fold."""
        found = [name for name, model in self.models.items() if model.takes(asked)]
        if not found and len(self.models) > 1:
            raise UserError(f"none of the models takes this input; there are models of {', '.join(self.models)}")
        return found[-1] if found else next(iter(self.models))


def find(word: str, name: str, folder: Path | None, device: str | None = None) -> Trained:
    """Load the models of a workload's run or of a folder onto `device`, by default a GPU if there is one."""
    import torch

    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    return of_folder(word, folder, device) if folder else of_run(word, name, device)


def of_run(word: str, name: str, device: str) -> Trained:
    """Load the models of a run. Raises UserError for an unknown or untrained one."""
    run = Run(workloads.name_of(word), name)
    folders = folders_of(run)
    if not folders:
        raise UserError(run.unknown(cli.pretrained(run.workload)) + " --model FOLDER takes a folder with a model")
    return _trained(word, run.name, folders, device)


def folders_of(run: Run) -> dict[str, Path]:
    """Return the folders of a run's models, {member or run: folder}; {} for an unknown run."""
    if not run.started() and run.name in cli.pretrained(run.workload):
        return {run.name: cli.PRETRAINED / run.name}
    members = sorted((run.folder / "members").glob("*/model/best"), key=lambda path: _natural(path.parts[-3]))
    if members or not run.started():
        return {path.parts[-3]: path for path in members}
    return {run.name: run.best if run.best.is_dir() or not run.last.is_dir() else run.last}


def of_folder(word: str, folder: Path, device: str) -> Trained:
    """Load the model in a folder, or those of an export in its subfolders. Raises UserError for a run's folder."""
    if (folder / "config.yaml").is_file():
        parts = folder.resolve().parts
        name = f"{parts[-3]}/{parts[-1]}" if parts[-2] == "members" else parts[-1]
        best = f", or --model {folder}/model/best" if (folder / "model" / "best").is_dir() else ""
        raise UserError(f"--model {folder}: this is a run's folder, not a model's; give --name {name}{best}")
    below = {path.parent.name: path.parent for path in sorted(folder.glob("*/config.json"))}
    alone = (folder / "config.json").is_file() or not below
    return _trained(word, folder.name, {folder.name: folder} if alone else below, device)


def _trained(word: str, name: str, folders: Mapping[str, Path], device: str) -> Trained:
    from models import io

    inputs = workloads.inputs(word)
    try:
        models = {member: io.load(folder, device) for member, folder in folders.items()}
    except ValueError as error:
        raise UserError(str(error)) from error
    for member, model in models.items():
        if getattr(model, "input_type", None) is not inputs.input:
            raise UserError(f"{folders[member]}: models of the family {model.family} are not of the workload {word}")
    return Trained(workloads.name_of(word), name, inputs, models)


def _natural(name: str) -> tuple[str, int]:
    """Order names by the number at their end, such as a fold's."""
    head, _, tail = name.rpartition("-")
    return (head, int(tail)) if tail.isdigit() else (name, 0)
