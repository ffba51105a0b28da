"""Azul compiled, on states packed into words: rules, features, players, batches.

Only numba code belongs here; `engine` and `players` have the readable reference of each.
"""
