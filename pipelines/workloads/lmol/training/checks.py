"""Checks before the first step: whether training and saving would work."""

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from common.errors import UserError, as_user_error
from models import io
from models.images.comparator.interface import Comparator
from models.images.vlm_comparator.model import VlmComparator
from pipelines.engine.workload import Loss
from pipelines.workloads.lmol.training.batches import Pairs

TRIAL_PAIRS, TRIAL_STEPS = 4, 3


def check_trains(model: Comparator, pairs: Pairs, loss: Callable[[nn.Module, Mapping[str, Tensor]], Loss]) -> str:
    """Check that all parameters learn, and are saved and read back, in trial steps that leave the model as it was."""
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    before = {name: p.detach().clone() for name, p in trained.items()}
    about = pairs.pairs[:, 3:].sum(1)  # the number of an attribute, if there are several
    batch = pairs.batch(torch.cat([(about == each).nonzero().flatten()[:TRIAL_PAIRS] for each in about.unique()]))
    device = model.reference_images.device
    batch = {name: tensor.to(device) for name, tensor in batch.items()}  # workers' batches are on the CPU
    optimizer = torch.optim.AdamW(trained.values(), lr=1e-3, weight_decay=0.0)
    reached: set[str] = set()
    training = model.training
    model.train()
    try:
        with torch.random.fork_rng(devices=[]):
            for _ in range(TRIAL_STEPS):  # an adapter's first matrix gets no gradient until its second leaves zero
                loss(model, batch).value.backward()
                reached |= {name for name, p in trained.items() if p.grad is not None and p.grad.any()}
                optimizer.step()
                optimizer.zero_grad()
        if still := [name for name, p in trained.items() if name not in reached or torch.equal(p, before[name])]:
            which = f"{_some(still)}: {len(still)} of {len(trained)} parameters that are meant to train"
            why = "get no gradient or do not move in trial steps, so training would not change them"
            raise UserError(f"{which} {why}; choose another model.kind or model.base")
        if unsaved := sorted(trained.keys() - model.state_dict().keys()):
            raise UserError(f"{_some(unsaved)} would train but not be saved; choose another model.kind or model.base")
        parts = ("lora_", *getattr(model, "projectors", ())) if getattr(model.config, "lora", False) else ()
        if absent := [part for part in parts if not any(part in name for name in trained)]:
            raise UserError(f"nothing named {absent[0]} would train; give another model.base")
        _check_reload(model.eval())
    finally:
        with torch.no_grad():
            for name, p in trained.items():
                p.copy_(before[name])
                p.grad = None
        model.train(training)
    return f"trial steps: all {len(trained)} parameter tensors learn and are saved; reloading gives equal logits"


@torch.no_grad()
def _check_reload(model: Comparator) -> None:
    """Raise UserError if the model, saved and loaded again, has other logits.

    A large base is not built twice: its stored tensors are set to zero and read back from the file.
    """
    expected = model(**model.example())
    device = expected.device
    with tempfile.TemporaryDirectory() as folder, as_user_error("model: "):
        io.save(model, folder)
        if model.large_base:
            for tensor in model.state_dict().values():
                tensor.zero_()
            model.load_state_dict(io.stored_weights(Path(folder) / io.WEIGHTS)[0])
            found = model(**model.example())
        else:
            again = io.load(folder, device)
            if isinstance(model, VlmComparator) and isinstance(again, VlmComparator):
                again.attention = model.attention
            found = again(**model.example())
    # On a CPU the same kernels compute the same bits; a GPU may choose others.
    tolerance = 0.0 if device.type == "cpu" else 1e-3
    if not (difference := float((found - expected).abs().max())) <= tolerance:
        why = "either something that trains or the base is not restored; choose another model.kind or model.base"
        raise UserError(f"saved and loaded again, the model's logits differ by {difference:g}: {why}")


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
