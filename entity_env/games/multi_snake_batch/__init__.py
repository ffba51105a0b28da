"""Multi-snake on many boards at once: a compiled version of `multi_snake`.

Observations and actions match a `VecEnv` of `multi_snake` row for row, and both play identical
episodes for equal seeds.

Example:
    >>> import numpy as np
    >>> from entity_env.games.multi_snake_batch import MultiSnakeBatch
    >>> from entity_env.vec import VecEnv
    >>> with VecEnv(MultiSnakeBatch(num_snakes=2), num_envs=3) as vec:
    ...     obs = vec.reset(seed=1)
    ...     obs = vec.act({"Move": np.zeros(6, dtype=np.int64)})
    >>> obs.features["Head"]
    RaggedArray(3 sequences, 6 rows, shape (6, 3), float32)
"""

from entity_env.games.multi_snake_batch.boards import MultiSnakeBatch as MultiSnakeBatch
from entity_env.vec import Autoreset as Autoreset
