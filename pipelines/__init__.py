"""Stages (prepare, train, evaluate) that are the same program for every workload."""
