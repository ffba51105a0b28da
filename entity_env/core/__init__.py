"""Common types: spaces, observations, environments, episodes, ragged arrays, seeds.

Behavior of games, agents or processes does not belong here, nor what game authors write: see
`authoring`.
"""
