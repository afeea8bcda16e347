"""Uploading an export to Hugging Face's hub."""

import json
from pathlib import Path

from exporters import manifest
from models import hub


def check(name: str) -> None:
    """Raise ValueError unless `name` can be a repository of the hub."""
    if not hub.NAME.fullmatch(name):
        raise ValueError(f"--push {name} must be OWNER/NAME, as in my-name/cvrp-20")


def push(out: Path, name: str) -> str:
    """Upload the files of a complete export in one commit, and return a line that says where they are.

    A repository that is not there yet is made, private. Raises ValueError, in one line, if that fails.
    """
    from huggingface_hub import CommitOperationAdd, HfApi

    files = [manifest.NAME, *json.loads((out / manifest.NAME).read_bytes())["files"]]
    with hub.explained(f"{out} is complete, but cannot be uploaded to {name}"):
        api = HfApi(library_name="one-training-pipeline")
        url = api.create_repo(name, private=True, exist_ok=True)
        operations = [CommitOperationAdd(file, str(out / file)) for file in files]
        commit = api.create_commit(name, operations, commit_message="Export of a trained model")
        return f"uploaded to {url} (commit {commit.oid[:12]}); a new repository is private until you change that"
