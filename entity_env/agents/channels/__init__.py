"""Games as environments: a game runs on its own stack and waits there for actions.

The two transports are greenlets and threads. Agents that decide for themselves do not belong here.
"""
