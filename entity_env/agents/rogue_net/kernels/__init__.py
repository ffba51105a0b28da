"""Compiled loops of the network, on the CPU: attention, blocks, embeddings, choices.

Only numba code belongs here; `torch_net` and `ppo` call it where numba is installed.
"""
