"""What every part speaks: spaces, observations, environments, episodes, ragged arrays, seeds.

No behaviour of games, agents or processes belongs here, and nothing that a game's author writes:
that is `authoring`.
"""
