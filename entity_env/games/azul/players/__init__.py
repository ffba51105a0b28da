"""Azul players: scripted, searching, neural and human players, and matches between them.

Legality and scoring are in `engine`.
"""
