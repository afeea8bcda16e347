"""Models that compare and score images: comparators, vision towers, and rankings from comparisons."""
