"""Trading on predictions: signals, their backtest, and its performance."""
