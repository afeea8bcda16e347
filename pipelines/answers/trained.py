"""A trained run, a folder of a model, or an export, as something that answers inputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common.batches import batched
from common.config import checked
from common.errors import UserError
from common.input_files import Given, Inputs
from pipelines import cli, workloads
from pipelines.run.folder import Run

if TYPE_CHECKING:
    from models.io import Model


@dataclass(frozen=True)
class Trained:
    """The models of a run, of which each input is for one."""

    workload: str
    name: str
    inputs: Inputs
    models: Mapping[str, Model]  # by the member's name; the only one of a run of one has the run's

    def answers(
        self, given: Iterable[Given], settings: Mapping[str, Any], at_once: int
    ) -> Iterator[tuple[Given, dict[str, Any]]]:
        """Yield each input with its answer, or with {"error": what is wrong}, in their order.

        Up to `at_once` are answered together.
        """
        for part in batched(given, at_once):
            found: list[dict[str, Any]] = []
            usable = []
            for each in part:
                try:
                    usable.append(self.asked(each))
                    found.append({})
                except UserError as error:
                    found.append({"error": str(error)})
            answers = iter(self.together(usable, settings))
            yield from ((each, error or next(answers)) for each, error in zip(part, found, strict=True))

    def together(self, asked: Sequence[Any], settings: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the answers to inputs that `asked` returned. Raises UserError for settings that do not fit."""
        found: dict[int, dict[str, Any]] = {}
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
            except ValueError as error:  # of settings that this machine or this model cannot follow
                raise UserError(str(error)) from error
        return [found[place] for place in range(len(asked))]

    def pieces(self, asked: Any, settings: Mapping[str, Any]) -> Iterator[str]:
        """Yield the text of the answer to an input that `asked` returned, piece by piece.

        Raises UserError for settings that do not fit, and for models of anything but text, when called.
        """
        model: Any = self.models[self.member_for(asked)]
        if not hasattr(model, "stream"):
            raise UserError(f"{self.name} is no model of text, so there is nothing to stream")
        try:
            return model.stream(asked, **settings)
        except ValueError as error:
            raise UserError(str(error)) from error

    def asked(self, given: Given, files: bool = True) -> Any:
        """Return an input as the models take it, with what users leave out; without `files` it names none to be read.

        Raises UserError for one that does not fit.
        """
        if given.input is None:
            raise UserError(given.error)
        whole = self.inputs.completed(given.input) if isinstance(given.input, Mapping) else given.input
        return checked(self.inputs.input, whole, "an input", {"files": files})

    def member_for(self, asked: Any) -> str:
        """Return the name of the model that takes an input: the last of several, such as folds in order of time."""
        found = [name for name, model in self.models.items() if model.takes(asked)]
        if not found and len(self.models) > 1:
            raise UserError(f"none of the models is for this input; there are models of {', '.join(self.models)}")
        return found[-1] if found else next(iter(self.models))


def find(word: str, name: str, folder: Path | None, device: str | None = None) -> Trained:
    """Load the models of a workload's run, or those in a folder; without a `device`, onto a GPU where there is one."""
    import torch

    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    return of_folder(word, folder, device) if folder else of_run(word, name, device)


def of_run(word: str, name: str, device: str) -> Trained:
    """Load the models of the run of a workload. Raises UserError where there is none, or none that is trained."""
    run = Run(workloads.name_of(word), name)
    folders = folders_of(run)
    if not folders:
        raise UserError(run.unknown(cli.pretrained(run.workload)) + " --model FOLDER takes a folder with a model")
    return _trained(word, run.name, folders, device)


def folders_of(run: Run) -> dict[str, Path]:
    """Return the folders of a run's models, {member or run: folder}; {} where there is no such run."""
    if not run.started() and run.name in cli.pretrained(run.workload):
        return {run.name: cli.PRETRAINED / run.name}
    members = sorted((run.folder / "members").glob("*/model/best"), key=lambda path: _natural(path.parts[-3]))
    if members or not run.started():
        return {path.parts[-3]: path for path in members}
    return {run.name: run.best if run.best.is_dir() or not run.last.is_dir() else run.last}


def of_folder(word: str, folder: Path, device: str) -> Trained:
    """Load the model in a folder, or those of an export in the folders below it.

    Raises UserError for a run's folder, whose models lie further below.
    """
    if (folder / "config.yaml").is_file():
        parts = folder.resolve().parts
        name = f"{parts[-3]}/{parts[-1]}" if parts[-2] == "members" else parts[-1]
        best = f", or --model {folder}/model/best" if (folder / "model" / "best").is_dir() else ""
        raise UserError(f"--model {folder}: this is the folder of a run, not of a model; give --name {name}{best}")
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
            raise UserError(f"{folders[member]}: a model of the family {model.family} is none of the workload {word}")
    return Trained(workloads.name_of(word), name, inputs, models)


def _natural(name: str) -> tuple[str, int]:
    """Order names by their number at the end, such as that of a fold."""
    head, _, tail = name.rpartition("-")
    return (head, int(tail)) if tail.isdigit() else (name, 0)
