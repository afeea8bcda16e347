"""Deployment artifacts from the saved model of a run. Only files are read: nothing here imports the training code."""
