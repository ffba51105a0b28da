"""Numba kernels of the network, on the CPU: attention, block, embedding, rollout policy.

Only numba code belongs here; `torch_net` and `ppo` call it if numba is installed.
"""
