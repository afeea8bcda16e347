"""Heuristics and classical solvers, the timing of all methods, and the check of their tours."""
