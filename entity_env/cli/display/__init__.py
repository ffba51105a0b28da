"""Terminal output: games, progress and curves, drawn with rich.

Nothing here chooses actions or steps a game; `views.text` draws observations.
"""
