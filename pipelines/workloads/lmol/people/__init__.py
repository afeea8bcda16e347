"""What people answer about pairs: scores from preferences, rankings, and the pairs to ask about next."""
