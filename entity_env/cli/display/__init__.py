"""Terminal output: games, progress and curves, drawn with rich.

Code here neither chooses actions nor steps games; `views.text` draws observations.
"""
