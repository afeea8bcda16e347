"""Pooled experts as the one program of all classifiers of candles: `exporters/onnx/cnn_lstm.py`."""

from exporters.onnx.cnn_lstm import describe

__all__ = ["describe"]
