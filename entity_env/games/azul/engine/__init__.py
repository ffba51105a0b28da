"""Programming interface to single games of Azul: states, actions, moves, tile draws.

The rules are in `kernels.engine`. Arrays of many games do not belong here.
"""
