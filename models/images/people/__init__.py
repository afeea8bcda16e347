"""People's answers about pairs of images: scores from these preferences, and the pairs to ask about next."""
