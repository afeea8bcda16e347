"""Classifiers of the next move of a coin, and the candles and features they see."""
