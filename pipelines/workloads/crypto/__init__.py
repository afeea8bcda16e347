"""Classifiers of the next price move of a coin, and what trading on them would have paid."""
