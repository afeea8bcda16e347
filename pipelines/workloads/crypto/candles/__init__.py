"""Candles as they come: files, exchanges, a simulated market; checked before they are trusted."""
