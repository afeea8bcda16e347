"""Deployment artifacts from the saved model of a run. Reads files only: nothing here imports the training code."""
