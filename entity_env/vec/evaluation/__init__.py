"""Episodes apart from training: evaluations of a run, the best network, what random play gets.

Environments belong to `vec`; training and its callbacks to `agents/ppo`.
"""
