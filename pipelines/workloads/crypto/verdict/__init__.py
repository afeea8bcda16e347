"""Judgement of predictions: metrics, their significance, and the verdict on each coin."""
