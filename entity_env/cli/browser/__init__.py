"""Pages that a command serves to a browser of this machine: a game that people play, a run.

Not here: drawings and pages of whole episodes (`views`); what the terminal shows (`cli.display`).
"""
