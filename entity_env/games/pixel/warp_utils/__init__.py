"""Utilities for NVIDIA Warp kernels: types, import, launch.

Kernels are in the folders that use them.
"""
