"""Environments that keep all copies as arrays: `BatchEnv`, `ResetMask`, `BatchVecEnv`; `BatchSource`
and `ArrayBatch`, by which others are stepped in a `VecEnv`.

Rules of particular games belong to `games`.
"""
