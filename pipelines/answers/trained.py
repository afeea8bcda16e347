"""A trained run, a model folder or an export, ready to answer inputs."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from common.config import Section, checked, plain_yaml
from common.errors import UserError, as_user_error
from common.input_files import Given, Inputs
from common.plain import Plain
from models import shipped
from pipelines import exits, workloads
from pipelines.run.folder import Run

if TYPE_CHECKING:
    from models.io import Model

Pieces: TypeAlias = "Generator[str, None, str | None]"  # of text; returns why it ended, if that is known
ALL = "shipped"  # name of all shipped models of a workload that chooses one per input


@dataclass(frozen=True)
class Trained:
    """The models of a run; each input is for one of them."""

    workload: str
    name: str
    inputs: Inputs
    models: Mapping[str, Model]  # by member; a single model by the run's name
    unjudged: str = ""  # how far its training came, where no evaluation has judged it

    @property
    def first(self) -> Model:
        """The first model, which stands for a run of many."""
        return next(iter(self.models.values()))

    def together(self, given: Sequence[object], settings: Mapping[str, object]) -> list[dict[str, Any]]:
        """Return the answers to inputs, `read` or not. Raises UserError for unusable settings."""
        found: dict[int, dict[str, Plain]] = {}
        inputs: dict[str, dict[int, Any]] = {}  # model -> {index in `given`: input}
        for place, each in enumerate(given):
            try:
                read = self.asked(each) if isinstance(each, Given) else each
                inputs.setdefault(self.member_for(read), {})[place] = read
            except UserError as error:
                found[place] = {"error": str(error)}
        for name, own in inputs.items():
            with as_user_error():  # settings that this machine or model does not support
                found |= zip(own, self.models[name].predict(own.values(), len(own), **settings), strict=True)
        return [found[place] for place in range(len(given))]

    def pieces(self, asked: object, settings: Mapping[str, object]) -> Pieces:
        """Return an answer's pieces as they are written; UserError for unusable settings, or a model without text."""
        if (stream := getattr(self.models[self.member_for(asked)], "stream", None)) is None:
            raise UserError(f"{self.name} writes no text, so there is nothing to stream")
        with as_user_error():
            pieces: Pieces = stream(asked, **settings)
        return pieces

    def asked(self, given: Given) -> Section:
        """Return an input, validated for the models. Raises UserError for an unusable one."""
        if given.input is None:
            raise UserError(given.error)
        suited = self.inputs.beside_it
        return self.read(suited(given, list(self.models.values())) if suited else given.input)

    def read(self, given: object, files: bool = True) -> Section:
        """Return plain values as a complete, valid input, which may name `files` or not; UserError for misfits."""
        whole = self.inputs.completed(given) if isinstance(given, Mapping) else given
        return checked(self.inputs.input, whole, "an input", {"files": files})

    def member_for(self, asked: object) -> str:
        """Return the model's name for an input: the workload's choice of shipped ones, else the last that takes it."""
        if self.name == ALL and self.inputs.shipped and isinstance(asked, Section):
            fitting = self.inputs.shipped(dict(asked))
            if fitting in self.models:
                return fitting
        found = [name for name, model in self.models.items() if model.takes(asked)]
        if not found and len(self.models) > 1:
            raise UserError(f"none of the models takes this input; there are models of {', '.join(self.models)}")
        return found[-1] if found else next(iter(self.models))


def find(word: str, name: str | None, folder: Path | None, device: str | None = None) -> Trained:
    """Load a run's or a folder's models onto `device` (by default a GPU if any); without either, the `usual` run's."""
    if not folder and not name:
        name = usual(word, exits.announce)
    import torch

    from models import io

    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError) as error:  # the latter from a torch built without such devices
        raise UserError(f"--device {device}: {str(error).splitlines()[0]}; give one such as cpu or cuda:0") from error
    if folder:
        return of_folder(word, folder, device)
    run = Run(workloads.name_of(word), str(name))
    if not (folders := folders_of(run)):
        raise UserError(run.unknown(shipped.names(run.workload)) + " --model FOLDER takes a folder with a model")
    if (code := workloads.inputs(word).code) and run.started():
        code(plain_yaml.parse(run.config_file.read_bytes()))
    found = _trained(word, run.name, folders, device)
    *others, last = folders
    if others and run.name != ALL and type(found.first).takes is io.Model.takes:  # each takes any input
        exits.announce(f"{run.folder}: {last} answers; --name {run.name}/{others[0]} takes another model of the run")
    if unjudged := run.unjudged():
        exits.announce(f"{run.folder}: {unjudged}")
    return replace(found, unjudged=unjudged) if unjudged else found


def usual(word: str, say: Callable[[str], object] = str) -> str:
    """Return the newest run with a model no worse than the shipped one, else that, ALL or UserError; `say` why."""
    workload, inputs = workloads.name_of(word), workloads.inputs(word)
    root, ships = Run(workload, ALL).root, shipped.names(workload)
    models = [path for form in ("*", "*/members/*") for path in root.glob(f"{form}/model/best/config.json")]
    names = [path.relative_to(root).parts[0] for path in sorted(models, key=lambda path: path.stat().st_mtime)]
    runs = [run for name in names if (run := Run(workload, name)).started()]
    trained = [run for run in runs if run.name not in ships or run.metrics_file.exists()]  # not a copy of ours
    ours = ALL if len(ships) > 1 and inputs.shipped else next(iter(ships), "")
    if not trained and not ours:
        train = f"train one: accelerate launch pipelines/train.py --workload {word}"
        raise UserError(f"there is no run of {workload} yet, and no model of it ships; {train}")
    worse = [inputs.worse(run.folder) if ours and inputs.worse else "" for run in trained]
    if "" in worse:
        newest = [run for run, why in zip(trained, worse, strict=True) if not why][-1]
        others = f"--name {ours} takes what ships" if ours else "--name takes another"
        why = f"as {trained[-1].folder} {worse[-1]}" if worse[-1] else "the newest run"
        say(f"model: {newest.folder}, {why}; {others}")
        return newest.name
    which = f"models: {', '.join(ships)}, which ship" if ours == ALL else f"model: {ours}, which ships"
    why = f"{trained[-1].folder} {worse[-1]}; --name {trained[-1].name} takes it" if trained else "there is no run yet"
    say(f"{which}: {why}{'' if trained else '; --name takes another'}")
    return ours


def folders_of(run: Run) -> dict[str, Path]:
    """Return the folders of a run's models, {member or run: folder}; {} for an unknown run."""
    ships = shipped.names(run.workload)
    if not run.started() and run.name in ships:
        return shipped.models_in(shipped.FOLDER / run.name)
    if not run.started() and run.name == ALL:
        return {name: shipped.FOLDER / name for name in ships}
    members = sorted((run.folder / "members").glob("*/model/best"), key=lambda path: shipped.order(path.parents[1]))
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
    return _trained(word, folder.name, shipped.models_in(folder), device)


def _trained(word: str, name: str, folders: Mapping[str, Path], device: str) -> Trained:
    from models import io

    inputs = workloads.inputs(word)
    with as_user_error():
        models = {member: io.load(folder, device) for member, folder in folders.items()}
    for member, model in models.items():
        if getattr(model, "input_type", None) is not inputs.input:
            raise UserError(f"{folders[member]}: models of the family {model.family} are not of the workload {word}")
    return Trained(workloads.name_of(word), name, inputs, models)
