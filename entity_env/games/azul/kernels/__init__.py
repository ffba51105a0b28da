"""Azul on states packed into words: rules, observations, entities, heuristics, search, batches.

Each is written once, as ordinary Python that numba can compile (`kernel`). What people call is in
`engine`, `players` and the modules above; here are functions, and `NamedTuple`s of arrays.
"""
