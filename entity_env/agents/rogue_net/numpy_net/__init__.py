"""The network in numpy, for shipped agents: equivalent results without torch.

Nothing here computes gradients, or imports torch or numba.
"""
