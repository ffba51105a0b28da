"""Numba kernels of the network, on the CPU: layout, embedding, attention, block, rollout policy.

Arrays must be contiguous and of matching shapes: nothing is checked. `torch_net` and trainers call
the kernels if numba is installed.
"""
