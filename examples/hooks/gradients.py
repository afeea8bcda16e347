"""Histograms of gradients in the experiment tracker.

    accelerate launch pipelines/train.py --workload cvrp tracking.log_with=[tensorboard] \\
        training.hooks=[examples.hooks.gradients:GradientHistograms]
"""

from pipelines.engine.hooks import Hook, Moment


class GradientHistograms(Hook):
    """Tracks the gradients of each parameter as often as losses are logged."""

    def on_update(self, now: Moment) -> None:
        """Track the gradients of this update."""
        if now.step % now.config.training.log_steps == 0:
            named = now.model.named_parameters()
            now.track({f"gradients/{name}": each.grad for name, each in named if each.grad is not None}, {})
