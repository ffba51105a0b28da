"""Environments that keep all copies as arrays: `BatchEnv`, `ResetMask`, `BatchVecEnv`.

`BatchSource` and `ArrayBatch` step others in a `VecEnv`.

Rules of particular games belong to `games`.
"""
