"""What the command line draws: games, progress, curves.

Nothing here decides or steps; it shows what it is handed.
"""
