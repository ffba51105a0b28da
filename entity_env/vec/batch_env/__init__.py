"""Environments that keep all copies as arrays: `BatchEnv`, `ResetMask`, `BatchVecEnv`.

Rules of particular games belong to `games`.
"""
