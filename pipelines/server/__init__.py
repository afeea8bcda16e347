"""Trained models over HTTP: requests are checked, answered together where they arrive together, and counted."""
