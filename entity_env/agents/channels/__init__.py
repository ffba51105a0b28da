"""Games as environments: a game runs on a stack of its own and waits there for actions.

Greenlets and threads are the two transports. Agents that decide by themselves do not belong here.
"""
