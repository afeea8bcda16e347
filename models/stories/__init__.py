"""Tiny transformers that tell stories, in floats and in integers, and the chip they are made for."""
