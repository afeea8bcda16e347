"""Distributions of generated instances, files of instances, and the standard test sets."""
