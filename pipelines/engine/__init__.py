"""The training path, the same for every workload: configuration, data order, loop, checkpoints, runs."""
