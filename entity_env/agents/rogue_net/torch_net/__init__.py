"""The network in torch, for training; parts that call numba kernels have handwritten gradients.

Compiled loops are in `kernels`, code without torch in `numpy_net`.
"""
