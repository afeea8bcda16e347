"""Loading prepared data and trained models on all processes of a command; torch is imported only on use."""

from __future__ import annotations

import argparse
import functools
import json
from pathlib import Path
from typing import TYPE_CHECKING

from common.disk import prepared
from common.errors import UserError, as_user_error
from common.plain import Plain
from pipelines import workloads
from pipelines.distributed import ranks
from pipelines.engine.config import BaseConfig
from pipelines.engine.workload import Workload
from pipelines.exits import announce
from pipelines.run.folder import Run

if TYPE_CHECKING:
    from accelerate import Accelerator
    from torch import nn


def prepare(
    name: str, workload: Workload, config: BaseConfig, run: Run | None = None, renew: bool = False
) -> tuple[Path, dict[str, Plain]]:
    """Prepare missing data, and with `renew` changed ones; print their `note`, return their folder and manifest.

    Raises UserError if the data differ from those that `run` was trained on.
    """
    data = config.data
    folder = prepared.folder_for(workloads.name_of(name), data, data.layout)
    way = f"; or copy {folder} from where {run.folder} was trained" if run and run.provenance() else ""
    with as_user_error(then="" if folder.exists() else way, of=UserError):
        manifest = prepared.prepare(
            folder,
            prepared.section_of(data),
            lambda temporary: workload.prepare(config, temporary),
            data.inputs,
            (lambda temporary: workload.prepare(config, temporary, folder)) if renew and data.renews else None,
            "pipelines/train.py --resume takes in what has changed" if data.renews else prepared.ANEW,
        )
    if run and not run.is_blank() and data.settled and not data.renews:
        run.check_inputs(manifest, folder)
    if manifest.get("note"):
        announce(str(manifest["note"]))
    return folder, manifest


def prepare_first(
    args: argparse.Namespace, workload: Workload, config: BaseConfig, run: Run | None = None, renew: bool = False
) -> tuple[Path, dict[str, Plain]]:
    """Call `prepare` on the main process. Raises UserError if another process has other data on its disk."""
    folder, manifest = ranks.on_main(lambda: prepare(args.workload, workload, config, run, renew))
    ranks.check_seen(folder / prepared.MANIFEST, f"copy that folder to {folder.absolute()} there")
    return folder, manifest


def trained_models(
    workload: Workload, config: BaseConfig, folder: Path, manifest: dict[str, Plain], run: Run, accelerator: Accelerator
) -> dict[str, nn.Module]:
    """Load the best models, {run or member: model}, {} without weights; untrained or stale members are left out."""
    if not config.trains:
        return {}
    config.hardware.apply(accelerator.device, accelerator.print)
    if not (known := workload.expand(config, folder)):
        early = ranks.on_main(lambda: run.last.is_dir() and not run.best.is_dir())  # before the first validation
        if early:
            accelerator.print(f"{run.best} is written at the first validation; using {run.last}")
        return {run.name: load_model(run.last if early else run.evaluated, config, accelerator)}

    def outcome(name: str) -> dict[str, Plain]:
        if not run.member(name).learnt_from(known[name].content(manifest)):
            return {"state": "stale", "reason": "its data have changed; continue with pipelines/train.py --resume"}
        return run.member(name).outcome() or {"state": "not trained"}

    outcomes = ranks.on_main(lambda: {name: outcome(name) for name in known})
    for name, found in outcomes.items():
        if found["state"] != "done":
            accelerator.print(f"{name} is left out: {found['state']} {found.get('reason', '')}")
    if not (done := [name for name, found in outcomes.items() if found["state"] == "done"]):
        raise UserError(f"no member of {run.folder} is trained yet; continue with pipelines/train.py --resume")
    return {name: load_model(run.member(name).evaluated, config, accelerator) for name in done}


def load_model(folder: Path, config: BaseConfig, accelerator: Accelerator) -> nn.Module:
    """Load a saved model, sharded under FSDP, and apply the hardware settings. Raises UserError without a model."""
    from models import io

    @as_user_error()
    def load() -> nn.Module:
        if accelerator.distributed_type == "FSDP":
            from pipelines.distributed import sharding  # late: other launches need none of its imports

            stated, (stored, metadata) = io.described(local), io.stored_weights(local / io.WEIGHTS, mapped=True)
            build = functools.partial(io.builder_of(stated["family"]), stated["config"])
            own = metadata.get("model") in (None, json.dumps(stated, sort_keys=True))  # else it is refused below
            # A base model is always read whole.
            if own and not stated["config"].get("base") and (split := sharding.load(accelerator, build, stored)):
                return split
        return io.load(local, accelerator.device)

    with ranks.copy_of(folder) as local:
        model = ranks.agree(load)
    config.hardware.model_copy(update={"gradient_checkpointing": False}).apply_to(model)
    return model
