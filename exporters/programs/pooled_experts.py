"""Pooled experts as the one program of all classifiers of candles: `exporters/programs/cnn_lstm.py`."""

from exporters.programs.cnn_lstm import describe

__all__ = ["describe"]
