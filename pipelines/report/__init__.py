"""The page that shows a run: tables, plots, and the template that holds them."""
