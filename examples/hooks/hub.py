"""Checkpoints on Hugging Face's hub, for --resume on another machine: a private repository, a commit a checkpoint.

    huggingface-cli login
    HUB_OWNER=my-name accelerate launch pipelines/train.py --workload cvrp \\
        training.hooks=[examples.hooks.hub:PushCheckpoints]

Download the repository into runs/WORKLOAD/NAME to go on there.
"""

import os
import sys
from pathlib import Path

from huggingface_hub import HfApi

from common.errors import UserError
from pipelines.engine.hooks import Hook, Moment


class PushCheckpoints(Hook):
    """Uploads each checkpoint and model/last to HUB_OWNER/WORKLOAD-NAME while training goes on."""

    def __init__(self) -> None:
        self.owner = os.environ.get("HUB_OWNER")
        if not self.owner:
            raise UserError("PushCheckpoints: set the owner of the repository, as in HUB_OWNER=my-name")

    def on_save(self, now: Moment, checkpoint: Path) -> None:
        """Push the checkpoint, and what else resuming reads."""
        api, run = HfApi(), now.run
        name = f"{self.owner}/{run.workload}-{run.name.replace('/', '-')}"
        kept = [f"checkpoints/{checkpoint.name}/**", "model/last/*", "config.yaml", "provenance.json"]
        try:
            api.create_repo(name, private=True, exist_ok=True)
            api.upload_folder(
                repo_id=name, folder_path=run.folder, allow_patterns=kept, commit_message=f"step {now.step}"
            )
        except (OSError, RuntimeError) as error:  # the hub cannot be reached or refuses: training goes on
            print(f"{checkpoint} was not pushed: {error}", file=sys.stderr)
