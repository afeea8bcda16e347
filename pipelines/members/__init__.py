"""Runs of many models: each member is an ordinary run, in a process of its own."""
