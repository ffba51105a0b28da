"""NVIDIA Warp, typed and started: what kernels share.

Kernels themselves are where they are used.
"""
