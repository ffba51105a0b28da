"""The subcommands of `entity-env`: their options, checks of them, and calls of the library.

Drawing belongs to `display`; what works without a terminal to the library.
"""
