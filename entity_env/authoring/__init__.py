"""The tools for writing a game: `Game`, `Obs`, entity and action types, and the agent it calls.

A game runs alone here, in its caller's thread. `vec` runs many games at once, `agents` holds agents
that choose actions, `batching` builds arrays of many observations.
"""
