"""Environments that keep all copies as arrays: `BatchEnv`, `ResetMask`, `BatchVecEnv`.

`BatchSource` and `ArrayBatch` step those of other kinds in a `VecEnv`.

Rules of particular games belong to `games`.
"""
