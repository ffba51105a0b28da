"""Draws the pictures of the docs from the real program: `python -m tools.pictures [NAME ...]`.

`scenes.py` lists them. Not here: plots of measurements (`tools/docs/plots.py`), and the picture of
the layout (`tools/draw_layout.py`).
"""
