"""Environments that keep all copies as arrays: `BatchEnv`, `ResetMask`, and as a `VecEnv`.

Rules of particular games belong to `games`.
"""
