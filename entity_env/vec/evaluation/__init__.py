"""Episodes outside training: evaluations of a run, the best network, random play.

Environments belong to `vec`, training callbacks to `agents/training`.
"""
