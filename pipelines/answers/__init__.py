"""Trained models applied to what users give them: which models a run has, and where inputs come from."""
