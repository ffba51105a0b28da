"""Common types: spaces, observations, environments, episodes, ragged arrays, seeds.

Behavior of games, agents or processes does not belong here. The classes with which authors write
games are in `authoring`.
"""
