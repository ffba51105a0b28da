"""Input from a person at a terminal: keys, lines, and descriptions of what there is to decide.

Drawing belongs to `cli.display`.
"""
