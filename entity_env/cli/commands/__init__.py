"""The subcommands of `entity-env`, a file each: options, checks, and calls of the library.

What they draw is in `display`; what the library can do without a terminal does not belong here.
"""
