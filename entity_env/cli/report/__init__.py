"""Reports of training runs: a page that explains itself, curves as SVG, and numbers as CSV.

Belongs here: the content of the page of `report` and `watch`. Tables that the terminal also prints
are in `run_tables`, charts in `entity_env.views.chart`.
"""
