"""Modules that every part may import: errors, files, GPU and machine readings, random numbers, text.

They import nothing of ours.
"""
