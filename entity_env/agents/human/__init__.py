"""Input from a person at a terminal: keys, lines, and the text of observations and actions.

Drawing belongs to `cli.display`.
"""
