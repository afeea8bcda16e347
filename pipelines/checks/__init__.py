"""Checks that this machine is ready to train, and measurements of how fast it trains."""
