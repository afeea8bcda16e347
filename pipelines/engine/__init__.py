"""Everything generic: configuration, data order, the training loop, checkpoints, runs, monitoring, reports."""
