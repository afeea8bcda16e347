"""Durable files: complete or absent, locked by one writer, prepared once, written in the background."""
