"""The page that shows a run: template, tables, plots."""
