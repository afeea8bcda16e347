"""Training by several processes: collective decisions, signs of life, and sharded weights."""
