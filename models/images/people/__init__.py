"""What people answer about pairs of images: scores from preferences, and the pairs to ask about next."""
