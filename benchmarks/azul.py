"""How fast is Azul with two players on one core? Includes the choice of random legal moves.

- `reference_moves_per_s`: `apply_in_place`, interpreted.
- `env_moves_per_s`: `AzulEnv.step`, compiled, with mask and observations; Python code draws the
  move from the mask.
- `playout_moves_per_s`: whole games, compiled, by `play_many`.
- `batch_moves_per_s_1024`: steps of `AzulBatch` with 1,024 games, masks and observations. Resets
  of finished games and the random choice of moves are included.
- `mcts_moves_per_s`: moves that `MCTSAgent` simulates to choose the first 20 moves of a game.
- `yardstick_loops_per_s`: a plain Python loop with an addition and a look-up, to compare machines.

All are measured in turns, in processor time of this process, so other work on the machine matters
less.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random

import numpy as np
from numba import njit
from numpy.typing import NDArray

from benchmarks.common import interleaved, report, rounds_and_json
from entity_env.games.azul import (
    AgentInput,
    AzulBatch,
    AzulEnv,
    EnvConfig,
    MCTSAgent,
    apply_in_place,
    legal_actions,
    new_game,
    play_many,
)

_ROUND_S = 0.4
_NUM_ENVS = 1024
_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(40)


def main() -> None:
    """Measures and reports."""
    num_rounds, as_json = rounds_and_json(__doc__ or "")
    report("Azul", figures(num_rounds), ["entity-env", "numpy", "numba"], as_json)


def figures(num_rounds: int = 7) -> dict[str, float]:
    """Medians of moves per second and of the yardstick."""
    measures: dict[str, Callable[[], float]] = {
        "reference_moves_per_s": lambda: _rate(reference_moves),
        "env_moves_per_s": lambda: _rate(env_moves),
        "playout_moves_per_s": lambda: _rate(playout_moves),
        "batch_moves_per_s_1024": lambda: _rate(batch_moves),
        "mcts_moves_per_s": lambda: _rate(search_moves),
        "yardstick_loops_per_s": lambda: _rate(yardstick_loops),
    }
    env_moves(0)
    playout_moves(0)
    batch_moves(0)
    search_moves(0)
    return interleaved(measures, num_rounds)


def _rate(play: Callable[[int], int]) -> float:
    """The sum of what `play` returns for successive seeds, per second."""
    count = seed = 0
    start = time.process_time()
    while (seconds := time.process_time() - start) < _ROUND_S:
        count += play(seed)
        seed += 1
    return count / seconds


def reference_moves(seed: int) -> int:
    """Plays five games without numba; returns the number of moves."""
    rng, random = np.random.default_rng(seed), Random(seed).random
    num_moves = 0
    for game in range(5):
        state = new_game(2, starting_player=game % 2, rng=rng)
        while state.end is None:
            actions = legal_actions(state)
            apply_in_place(state, actions[int(random() * len(actions))], check=False)
            num_moves += 1
    return num_moves


def env_moves(seed: int) -> int:
    """Plays ten games with `AzulEnv.step`; returns the number of moves."""
    env, random = AzulEnv(seed=seed), Random(seed).random
    num_moves = 0
    for _ in range(10):
        step = env.reset()
        while not step.done:
            legal = step.legal_action_mask.nonzero()[0]
            step = env.step(int(legal[int(random() * len(legal))]))
            num_moves += 1
    return num_moves


def playout_moves(seed: int) -> int:
    """Plays 2,000 games with `play_many`; returns the number of moves."""
    return int(play_many(2000, seed).moves.sum())


def batch_moves(seed: int) -> int:
    """Steps a batch of games; returns the number of moves."""
    batch = AzulBatch(_NUM_ENVS)
    batch.reset(seed * _NUM_ENVS)
    actions = np.zeros(_NUM_ENVS, np.int64)
    for number in range(200):
        choose(batch.legal_masks, np.uint64(200 * seed + number), actions)
        batch.reset_envs(batch.step_no_reset_with_result(actions).to_reset_mask())
    return 200 * _NUM_ENVS


@njit(cache=False)
def choose(
    masks: NDArray[np.bool_], word: np.uint64, actions: NDArray[np.int64]
) -> None:  # pragma: no cover
    """Writes a legal action for every game: the first one at or after a random index."""
    for i in range(len(actions)):
        word = (word + np.uint64(i + 1)) * _GAMMA
        place = int(np.int64((word >> _SHIFT) % np.uint64(300)))
        while not masks[i, place]:
            place = place + 1 if place < 299 else 0
        actions[i] = place


def search_moves(seed: int) -> int:
    """Searches the first 20 moves of a game; returns the number of simulated moves."""
    env, agent = (
        AzulEnv(EnvConfig(include_full_state_in_step=True), seed=seed),
        MCTSAgent(rollouts=1000),
    )
    rng = np.random.default_rng(seed)
    step = env.reset()
    for _ in range(20):
        step = env.step(agent.select_action(AgentInput.of(step), rng))
    return agent.num_moves


def yardstick_loops(seed: int) -> int:
    """Runs a plain loop; returns the number of iterations."""
    values, total = list(range(256)), seed
    for i in range(100_000):
        total += values[i & 255]
    return 100_000


if __name__ == "__main__":
    main()
