"""Prepared data: one folder for each data section, complete or absent."""

import hashlib
import json
from pathlib import Path
from typing import Any

from common.errors import UserError
from common.files import digests, folder_at_once, sha256, write_json
from pipelines.engine.config import BaseConfig
from pipelines.engine.workload import Workload

MANIFEST = "manifest.json"


def data_folder(name: str, workload: Workload, config: BaseConfig) -> Path:
    """data/<workload>/<hash of the data section>."""
    section = json.dumps({**_section(config), "layout": workload.layout}, sort_keys=True)
    return Path("data") / name / hashlib.sha256(section.encode()).hexdigest()[:16]


def prepare(name: str, workload: Workload, config: BaseConfig) -> tuple[Path, dict[str, Any]]:
    """The data folder and its manifest; made first if it is missing. To be called on one process at a time.

    Raises UserError if a file of the user's that the data were prepared from is another one by now.
    """
    folder = data_folder(name, workload, config)
    if not (folder / MANIFEST).exists():
        with folder_at_once(folder) as temporary:
            facts = workload.prepare(config, temporary)
            inputs = {str(path): sha256(path) for path in workload.inputs(config)}
            write_json(
                temporary / MANIFEST,
                {"data": _section(config), **facts, "inputs": inputs, "sha256": digests(temporary)},
            )
        return folder, json.loads((folder / MANIFEST).read_text())
    manifest = json.loads((folder / MANIFEST).read_text())
    # A file that has gone is no contradiction: a run can be evaluated where its source is not.
    known = manifest.get("inputs", {})
    changed = [path for path, was in known.items() if Path(path).is_file() and sha256(Path(path)) != was]
    changed += [str(path) for path in workload.inputs(config) if str(path) not in known]
    if changed:
        raise UserError(
            f"{changed[0]} has changed since {folder} was prepared; delete that folder to prepare it anew "
            "(runs trained on it will then no longer match), or give the new file another name"
        )
    return folder, manifest


def _section(config: BaseConfig) -> dict[str, Any]:
    """What of the config decides the prepared data: not how they are loaded."""
    return config.data.model_dump(mode="json", exclude={"loader"})
