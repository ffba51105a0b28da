"""Parts of a drawing: entities as shapes, their contrast, and the choices of agents.

The code that puts them together, into pictures of an episode, does not belong here.
"""
