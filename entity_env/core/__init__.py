"""Common types: spaces, observations, environments, episodes, ragged arrays, seeds.

No behavior of games, agents or processes belongs here, nor anything that a game's author writes:
see `authoring`.
"""
