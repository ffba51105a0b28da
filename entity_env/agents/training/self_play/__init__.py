"""Self-play: opponents in some of the environments, a pool of past selves, and ratings.

Matches between finished agents belong to `agents/ratings`.
"""
