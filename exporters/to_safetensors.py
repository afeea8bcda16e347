"""Export weights, config and a model card as Hugging Face's hub and `models.io.load` read them."""

import json
from collections.abc import Callable
from pathlib import Path

import torch
from huggingface_hub import CommitOperationAdd, HfApi
from torch import Tensor
from torch.utils._pytree import tree_leaves

from exporters import cards, export_folder
from exporters.cards import CARD, identity, source_of, title
from models import hub, io

FIGURES = "evaluation.json"


def export(
    run: Path, model_folder: Path, out: Path, merged: bool = False, license: str | None = None, push: str | None = None
) -> str:
    """Write the artifact, load it again, and write the manifest if nothing differs from the original.

    `merged` adds a copy of the base with the adapters merged in; `push` names a repository of the hub to upload to.
    """
    if push is not None and not hub.NAME.fullmatch(push):
        raise ValueError(f"--push {push} must be OWNER/NAME, as in my-name/cvrp-20")
    model = io.load(model_folder)
    obstacle = getattr(model, "unmergeable", "it has no adapters")
    if merged and obstacle:
        raise ValueError(f"leave --merged out for {model_folder}: {obstacle}")
    source = source_of(run, model_folder)
    provenance = cards.read_object(run / "provenance.json") or {}
    measured = cards.measured_of(run)
    written = {CARD: cards.card(model, run, source, provenance, measured, license)}
    written[FIGURES] = json.dumps(measured, indent=1, allow_nan=False) + "\n"
    export_folder.begin(out, {name: text.encode() for name, text in written.items()}, model_folder)
    io.save(model, out, {"run": title(run), "source": source, "commit": str(provenance.get("commit") or "unknown")})
    facts = identity("safetensors", run, model_folder, model)
    beside: list[str] = getattr(model, "save_beside", lambda folder: [])(out)
    exported = io.load(out)
    difference = prove_equal(model, exported)
    del model  # so that a base of billions of weights is in memory only once
    if merged:
        save_merged: Callable[[Path], tuple[list[str], float]] = getattr(exported, "save_merged")  # noqa: B009
        added, difference["merged_output"] = save_merged(out)
        beside += added
    names = [io.WEIGHTS, io.CONFIG, CARD, FIGURES, *beside]
    size = export_folder.finish(out, names, {**facts, "maximum_absolute_difference": difference})
    equal = f"equal to {source} in every weight and output"
    line = f"{out}: {facts['num_parameters']:,} parameters, {size:,} bytes, {equal}"
    if push is None:
        return line
    with hub.explained(f"{out} is complete, but cannot be uploaded to {push}"):  # in one commit
        api = HfApi(library_name="one-training-pipeline")
        url = api.create_repo(push, private=True, exist_ok=True)
        operations = [CommitOperationAdd(file, str(out / file)) for file in (export_folder.NAME, *names)]
        commit = api.create_commit(push, operations, commit_message="Export of a trained model")
        uploaded = f"uploaded to {url} (commit {commit.oid[:12]})"
        return f"{line}; {uploaded}; a new repository is private until you change that"


def prove_equal(model: io.Model, exported: io.Model) -> dict[str, float]:
    """The largest differences of weights and of outputs on `model.example()`; RuntimeError unless all are equal."""
    weights, output = (model.state_dict(), exported.state_dict()), (_outputs(model), _outputs(exported))
    compared: dict[str, tuple[dict[str, Tensor], dict[str, Tensor]]] = {"weights": weights, "output": output}
    for what, (ours, theirs) in compared.items():
        if ours.keys() != theirs.keys():
            raise RuntimeError(f"the exported {what} differ: {sorted(ours.keys() ^ theirs.keys())}")
        for name, tensor in ours.items():
            if tensor.dtype != theirs[name].dtype or not torch.equal(tensor, theirs[name]):
                raise RuntimeError(f"the exported {what} differ from the original in {name}")
    return dict.fromkeys(compared, 0.0)


def _outputs(model: io.Model) -> dict[str, Tensor]:
    # Gradients stay on, so that a policy gives log-probabilities and not only its choices.
    found = (leaf for leaf in tree_leaves(model(**model.example())) if isinstance(leaf, Tensor))
    return {str(number): tensor for number, tensor in enumerate(found)}
