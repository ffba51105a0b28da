"""Azul at the command line: its players by name, and a board that a person plays on.

The rules, players and drawing themselves are in `games.azul`.
"""
