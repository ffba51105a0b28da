"""The rules of Azul in plain Python: states, actions, scoring, draws of tiles.

The readable reference that everything compiled is compared with; no numpy arrays of many games.
"""
