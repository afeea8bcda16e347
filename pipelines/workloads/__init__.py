"""One folder per workload: what its data, model, loss and report are."""

MANY = ("crypto",)  # workloads whose runs train many models, known here before anything is imported
