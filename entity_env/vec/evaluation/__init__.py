"""Episodes apart from training: evaluations of a run, the best network, what random play gets.

Environments belong to `vec`; callbacks of training to `agents/training`.
"""
