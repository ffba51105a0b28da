"""A program that its user brings, played towards a screen that its user recorded.

Worlds that we bring are in `worlds` and `xo_chip`.
"""
