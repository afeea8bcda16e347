"""Time RL4CO's own training steps. Run by against_rl4co.py with the Python of an environment that has rl4co.

    python rl4co_steps.py CUSTOMERS STARTS LAYERS BATCH STEPS MATMUL_PRECISION [PRECISION]

The last two are RL4COTrainer's, whose defaults are "medium" and "16-mixed"; here PRECISION is "32-true" if it is not
given. One JSON line on standard output.
"""

import json
import logging
import statistics
import sys
import time
import warnings

warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)

import lightning
import torch
from rl4co.envs import CVRPEnv
from rl4co.models import POMO, AttentionModel
from rl4co.utils import RL4COTrainer

customers, starts, layers, batch, steps = map(int, sys.argv[1:6])
matmul_precision, precision = [*sys.argv[6:], "32-true"][:2]


class Clock(lightning.Callback):
    """Seconds of each training step, optimizer included."""

    def __init__(self):
        self.seconds = []

    def on_train_batch_start(self, *_):
        self.began = time.perf_counter()

    def on_train_batch_end(self, *_):
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.seconds.append(time.perf_counter() - self.began)


env = CVRPEnv(generator_params={"num_loc": customers})
sizes = {"batch_size": batch, "train_data_size": batch * (steps + 1), "val_data_size": batch, "test_data_size": batch}
policy = {"num_encoder_layers": layers}
if starts > 1:
    model = POMO(env, policy_kwargs=policy, num_starts=starts, **sizes)
else:
    model = AttentionModel(env, baseline="rollout", policy_kwargs=policy, **sizes)
clock = Clock()
trainer = RL4COTrainer(
    max_epochs=1,
    accelerator="auto",
    devices=1,
    precision=precision,
    callbacks=[clock],
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    gradient_clip_val=1.0,
    matmul_precision=matmul_precision,
)
trainer.fit(model)
median = statistics.median(clock.seconds[1:])
if starts == 1:
    # RL4CO makes the baseline's greedy tours of an epoch's instances between epochs; each step owes its share.
    baseline = model.baseline.baseline
    began = time.perf_counter()
    baseline.rollout(baseline.policy, env, batch_size=batch, dataset=env.dataset(2 * batch))
    median += (time.perf_counter() - began) / 2
print(json.dumps({"step_s": median, "examples_per_s": batch / median, "threads": torch.get_num_threads()}))
