"""Modules that every part may import: errors, files, readings of the machine, random numbers, text."""
