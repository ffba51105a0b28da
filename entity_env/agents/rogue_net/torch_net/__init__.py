"""The network in torch, for training: one file per operation, with its gradient.

Compiled loops are in `kernels`, code without torch in `numpy_net`.
"""
