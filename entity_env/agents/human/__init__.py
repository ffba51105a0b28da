"""Input from a person at a terminal: keys, lines, and text for observations and actions.

Drawing belongs to `cli.display`.
"""
