"""Input from a person at a terminal: keys, lines, and descriptions of observations and actions.

Drawing belongs to `cli.display`.
"""
