"""The folder of a run: its config, provenance and records."""
