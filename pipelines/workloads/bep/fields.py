"""The fields of a BIM Execution Plan form, each with the beginning of a text for a model to complete."""

import json
from pathlib import Path

FIELDS: dict[str, str] = json.loads(Path(__file__).with_suffix(".json").read_text())
