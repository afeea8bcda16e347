"""Settings of all tests."""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for a bare `pytest`; `python -m pytest` does it itself
torch.set_num_threads(1)  # pytest runs one worker per core
