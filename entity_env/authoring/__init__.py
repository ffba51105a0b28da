"""What a game is written with: `Game`, `Obs`, entity and action types, the agent it asks.

Here a game runs alone, in its caller's thread. Many games at once are `vec`, agents that answer a
game are `agents`, and arrays of many observations `batching`.
"""
