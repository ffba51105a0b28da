"""The subcommands of `entity-env`: their options, checks of them, and calls of the library.

Drawing is in `display`; what works without a terminal belongs to the library.
"""
