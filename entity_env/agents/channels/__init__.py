"""Games as environments: a game runs on its own stack and waits there for actions.

The transports are greenlets and threads. Agents that make decisions do not belong here.
"""
