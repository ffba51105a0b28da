"""Parts of a drawing: entities as shapes, their contrast, and the choices of agents.

What puts them together, into pictures of an episode, does not belong here.
"""
