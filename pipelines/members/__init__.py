"""Runs of many models: each member is an ordinary run, in a process of its own or, on a GPU, side by side in one."""
