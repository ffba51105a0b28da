"""How fast is multi-snake on many boards, compared with entity-gym-rs' `RustVecEnv`?

1,024 boards of 10 x 10 cells with one snake each. Precomputed random moves are wrapped as ragged
rows on both sides. Ours steps in this process with one thread, theirs in a separate process with
two; each sleeps while the other is measured. A ratio is the median over rounds of the ratio within
a round.
"""

from __future__ import annotations

import statistics
from itertools import cycle

import numpy as np

from benchmarks.batch_groups.plan import Setup
from benchmarks.peers.contender import Contender
from benchmarks.peers.environment import peers_python
from benchmarks.peers.stepper import Stepper
from entity_env import RaggedArray
from entity_env.games.multi_snake_batch import MultiSnakeBatch
from entity_env.vec import VecEnv

_NUM_ENVS = 1024
_NUM_BATCHES = 64
_ROUND_S = 0.4


def figures(setup: Setup) -> dict[str, float]:
    """Measures ours and theirs in turns.

    Returns:
        `multi_snake_batch_vs_rust`, ratio of our steps per second to theirs, and both in millions.
    """
    python = peers_python(setup.say)
    rust = Contender("entity_gym_lists:snake_rust", _NUM_ENVS, python=python)
    try:
        with VecEnv(MultiSnakeBatch(num_snakes=1), _NUM_ENVS) as vec:
            ours = Stepper(_NUM_ENVS, Steps(vec))
            rounds = []
            for i in range(setup.num_rounds):
                setup.say(f"round {i + 1} of {setup.num_rounds}")
                rounds.append((ours.round(_ROUND_S)["us"], rust.round(_ROUND_S)["us"]))
    finally:
        rust.close()
    return {
        "multi_snake_batch_vs_rust": statistics.median(b / a for a, b in rounds),
        "multi_snake_batch_msteps_1024": 1 / statistics.median(a for a, _ in rounds),
        "rust_vec_env_msteps_1024": 1 / statistics.median(b for _, b in rounds),
    }


class Steps:
    """Supplies an action for every actor, as the stepper of entity-gym-rs does."""

    def __init__(self, vec: VecEnv) -> None:
        self._vec = vec
        self._obs = vec.reset(seed=0)
        num_actors = len(self._obs.action_masks["Move"].actors.values)
        rng = np.random.default_rng(0)
        self._batches = cycle(rng.integers(0, 4, (_NUM_BATCHES, num_actors)))

    def __call__(self) -> None:
        lengths = self._obs.action_masks["Move"].actors.lengths
        values = next(self._batches)[: lengths.sum()]
        self._obs = self._vec.act({"Move": RaggedArray.unchecked(values, lengths)})
