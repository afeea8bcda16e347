"""Trained models applied to users' inputs: finding the models of a run, reading the inputs of a command."""
