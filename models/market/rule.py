"""The rule by which an evaluation traded a model's signals, kept in rule.json beside the weights."""

import hashlib
import json
from pathlib import Path

import torch
from pydantic import Field
from torch import nn

from common.config import Section, checked
from common.errors import as_user_error

RULE = "rule.json"
NEVER = "never evaluated: it is unknown whether its signals, the likeliest class, earn their costs"


class CoinRule(Section):
    """The evaluation's result for a coin's newest model."""

    verdict: str = Field(description="verdict on the coin, money first")
    threshold: float | None = Field(gt=0, le=1, description="probability from which a side is traded; null: never")
    temperature: float = Field(1.0, gt=0, exclude=True, description="of earlier evaluations; nothing applies it")
    reason: str = Field("", description="why the coin is not traded")
    recalibration: int = Field(0, ge=0, le=10_000, description="newest labels that correct the probabilities; 0: none")


class Rule(Section):
    """The rules of a model's coins."""

    weights: str = Field(description="fingerprint of the weights that were evaluated")
    headline: str = Field(description="the verdict on all coins of the run")
    costs: dict[str, float | None] = Field(description="fee, slippage, funding, stop and target of the evaluation")
    coins: dict[str, CoinRule]


def fingerprint(model: nn.Module) -> str:
    """Return the SHA-256 of all tensors, by name."""
    total = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        total.update(name.encode())
        total.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return total.hexdigest()


def load(folder: Path, model: nn.Module, judged: object = None) -> Rule | None:
    """Return the rule in a model's folder; None without one, or if it is neither of the model's weights nor `judged`.

    Raises ValueError for a damaged file.
    """
    path = folder / RULE
    if not path.is_file():
        return None
    with as_user_error(f"{path} is damaged (", "); evaluate the run again", (OSError, RecursionError, ValueError)):
        rule = checked(Rule, json.loads(path.read_bytes()), str(path))
    return rule if rule.weights in (fingerprint(model), judged) else None
