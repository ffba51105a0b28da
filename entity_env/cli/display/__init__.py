"""Terminal output: games, progress and curves, drawn with rich.

Nothing here chooses actions or steps a game, except for the prompt of Azul's human players.
"""
