"""Numba kernels of the network, on the CPU: attention, block, embedding, rollout policy.

Arrays must be contiguous and of matching shapes: nothing is checked. `torch_net` and `ppo` call the
kernels if numba is installed.
"""
