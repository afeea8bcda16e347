"""Prepared data: one folder for each data section, complete or absent."""

import hashlib
import json
from pathlib import Path
from typing import Any

from pipelines.engine.config import BaseConfig
from pipelines.engine.files import digests, folder_at_once, write_json
from pipelines.engine.workload import Workload

MANIFEST = "manifest.json"


def data_folder(name: str, config: BaseConfig) -> Path:
    """data/<workload>/<hash of the data section>."""
    section = json.dumps(config.data.model_dump(mode="json"), sort_keys=True)
    return Path("data") / name / hashlib.sha256(section.encode()).hexdigest()[:16]


def prepare(name: str, workload: Workload, config: BaseConfig) -> tuple[Path, dict[str, Any]]:
    """The data folder and its manifest; made first if it is missing. To be called on one process at a time."""
    folder = data_folder(name, config)
    if not (folder / MANIFEST).exists():
        with folder_at_once(folder) as temporary:
            facts = workload.prepare(config, temporary)
            section = config.data.model_dump(mode="json")
            write_json(temporary / MANIFEST, {"data": section, **facts, "sha256": digests(temporary)})
    return folder, json.loads((folder / MANIFEST).read_text())
