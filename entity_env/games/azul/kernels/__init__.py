"""Azul on packed states: rules, observations, entities, heuristics, search, batches.

Everything is ordinary Python that numba can compile (`kernel`). This folder holds functions and
`NamedTuple`s of arrays; the public interface is in `engine`, `players` and the modules above.
"""
