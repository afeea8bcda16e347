"""Judging a model: its answers, their figures, the baselines beside it, and the pictures of the report."""
