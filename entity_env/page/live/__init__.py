"""A game in a page: what it shows and asks, for the command line and for the worker of a page.

Static files and their checks belong to `page`.
"""
