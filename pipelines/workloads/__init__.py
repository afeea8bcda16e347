"""One folder per workload: what its data, model, loss and report are."""
