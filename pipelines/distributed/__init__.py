"""Training by several processes: what ranks decide together, and weights that are split among them."""
