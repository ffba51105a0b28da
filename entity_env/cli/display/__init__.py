"""Terminal output: games, progress and curves, drawn with rich.

Nothing here chooses actions or steps a game; what draws an observation is in `views.text`.
"""
