"""What the runs on this disk are, how they compare, and what of them may go."""
