"""The network in numpy, for shipped agents: the same results without torch.

Nothing here computes gradients, and nothing imports torch or numba.
"""
