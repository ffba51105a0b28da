"""Multi-snake on many boards at once: a compiled version of `multi_snake`.

Observations and actions match a `VecEnv` of `multi_snake` row for row, so an agent of one plays
the other. Only the random draws differ: `Draws` instead of `random.Random` places heads and food.
With `Draws`, the plain game plays identical episodes, seed for seed.

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

from entity_env.core.seeding import Draws as Draws
from entity_env.games.multi_snake_batch.boards import MultiSnakeBatch as MultiSnakeBatch
from entity_env.vec import Autoreset as Autoreset
