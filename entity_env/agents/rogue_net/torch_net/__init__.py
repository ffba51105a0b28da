"""The network in torch, for training: one file an operation, with its gradient.

Compiled loops are in `kernels`; what runs without torch is in `numpy_net`.
"""
