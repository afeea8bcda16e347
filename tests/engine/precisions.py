"""Updates in every precision beside the same in float64; as a script, on several processes:

python tests/engine/precisions.py OUT
"""

import copy
import itertools
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from pipelines import exits
from pipelines.engine.batches import Order
from pipelines.engine.config import BaseConfig, Training
from pipelines.engine.optim import OPTIMIZERS
from pipelines.engine.training import make_accelerator
from pipelines.engine.update import Updater
from pipelines.run.folder import Run
from tests.engine.toy import ITEMS, ToyTask

ROUNDING = {"no": 2e-5, "bf16": 3e-2, "fp16": 4e-3}  # of a gradient, as a share of its norm
STEPS = 3
# (optimizer, precision, micro-batch, clip)
CASES = list(itertools.product(OPTIMIZERS, ROUNDING, (16, 4), (None, 0.1)))


def updater_of(optimizer, precision="no", micro=16, clip=None, scale=2.0**12):
    """Return an updater of the toy; fp16 on a CPU as on a GPU, where alone Accelerate has a scaler."""
    training = Training(
        steps=STEPS, batch_size=16, micro_batch_size=micro, optimizer=optimizer, learning_rate=0.01, clip_norm=clip
    )
    config = BaseConfig(training=training)
    run = Run("toy", "precisions")
    accelerator = make_accelerator(config, run)
    accelerator.state._mixed_precision = precision  # a launcher's word, which holds for the process
    accelerator.native_amp = precision != "no"
    accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=scale) if precision == "fp16" else None
    updater = Updater(ToyTask(), config, accelerator, run)
    updater.choose_micro_batch_size()
    return updater


def trained(updater, steps=STEPS):
    """Return the gradients that the optimizers saw in each update, and the weights after it, each as one vector."""
    seen = {}
    for each in updater.optimizers:
        each.optimizer.register_step_pre_hook(
            lambda made, *_: seen.update({p: p.grad.clone() for g in made.param_groups for p in g["params"]})
        )
    gradients, weights, batches = [], [], updater.batches()
    for _ in range(steps):
        updater.update(batches)
        gradients.append(torch.cat([seen[p].flatten() for p in updater.parameters]))
        weights.append(torch.cat([p.detach().flatten().clone() for p in updater.parameters]))
    return gradients, weights


def reference(clip, weights):
    """Return the gradients in float64 at the initial weights and at all but the last `weights`, clipped."""
    task, order = ToyTask(), Order(ITEMS, 16, seed=0)
    model, found = copy.deepcopy(task.model).double(), []
    initial = torch.cat([p.detach().flatten() for p in model.parameters()])
    for step, at in enumerate([initial, *weights[:-1]]):
        torch.nn.utils.vector_to_parameters(at.double(), model.parameters())
        batch = task.train.batch(order.items(step))
        error = (model(batch["x"].double()) - batch["y"].double())[batch["valid"]]
        gradient = torch.cat([g.flatten() for g in torch.autograd.grad(error.square().mean(), [*model.parameters()])])
        found.append(gradient * min(1.0, clip / float(gradient.norm())) if clip else gradient)
    return found


def stepped(optimizer, gradients):
    """Return the weights that the optimizers make of `gradients` in float64, one after the other."""
    model = ToyTask().model.double()
    training = Training(steps=STEPS, batch_size=16, optimizer=optimizer, learning_rate=0.01)
    optimizers, weights = training.optimizers(model), []
    for step, gradient in enumerate(gradients):
        parts = gradient.double().split([p.numel() for p in model.parameters()])
        for parameter, part in zip(model.parameters(), parts, strict=True):
            parameter.grad = part.view_as(parameter)
        for each in optimizers:
            for group in each.param_groups:
                group["lr"] = training.rate(step, STEPS)
            each.step()
        weights.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    return weights


def distances(case, found=None):
    """Return how far gradients, as shares of their norm, and weights are from float64's in all updates of a case."""
    optimizer, _, _, clip = case
    gradients, weights = found or trained(updater_of(*case))
    exact = reference(clip, weights)
    by_gradient = [float((a.double() - b).norm() / b.norm()) for a, b in zip(gradients, exact, strict=True)]
    by_weight = [
        float((a.double() - b).abs().max()) for a, b in zip(weights, stepped(optimizer, gradients), strict=True)
    ]
    return max(by_gradient), max(by_weight)


def main():
    """Write the distances of all cases, by one process of several."""
    found = []
    for optimizer, precision, micro, clip in CASES:
        updater = updater_of(optimizer, precision, micro // 2, clip)
        found.append((updater, trained(updater)))
    if updater.accelerator.is_main_process:
        Path(sys.argv[1]).write_text(json.dumps([distances(c, f) for c, (_, f) in zip(CASES, found, strict=True)]))


if __name__ == "__main__":
    exits.run_main(main)
