"""A game as a page: what it shows and asks, and the folder of static files that runs it.

Drawings belong to `views`; servers and commands belong to `cli`.
"""
