"""Pages for a browser on this machine: a game that people play, a run.

Drawings and pages of whole episodes belong to `views`, terminal output to `cli.display`.
"""
