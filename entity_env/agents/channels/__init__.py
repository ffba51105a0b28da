"""A game's loop turned inside out: `TrainAgent` asks over a channel, `TrainAgentEnv` answers.

Greenlets and threads are the two transports. Agents that decide by themselves do not belong here.
"""
