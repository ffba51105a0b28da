"""Games of Azul for people who write programs: states, actions, moves, draws of tiles.

The rules that they call are `kernels.engine`; no arrays of many games.
"""
