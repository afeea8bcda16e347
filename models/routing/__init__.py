"""Neural solvers for vehicle routing: encoders `gat`, `gt`, `dgt` and one pointer decoder."""
