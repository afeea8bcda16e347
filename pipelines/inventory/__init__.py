"""The runs on this disk: their table, sizes and comparison."""
