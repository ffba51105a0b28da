"""MultiSnakeBatch: many boards as a `VecEnvironment`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from entity_env.core.episode import Episode, LazyEpisodes
from entity_env.core.ragged import RaggedArray
from entity_env.core.spaces import GLOBAL_ENTITY, ActionName, ActionSpace, EntityName, ObsSpace
from entity_env.core.validation import checked_count, checked_seed, has_numba, require_choice
from entity_env.core.vec_env_base import Autoreset, SyncVecEnv
from entity_env.core.vec_obs import VecCategoricalActionMask, VecObs
from entity_env.errors import MissingExtraError
from entity_env.games.multi_snake import MOVE, multi_snake, require_playable
from entity_env.games.multi_snake_batch.draws import seed_pools
from entity_env.games.multi_snake_batch.state import (
    BEGIN,
    ENDED_ENV,
    ENDED_OVER,
    MOVE as TO_MOVE,
    NEXT,
    OVER,
    PLAYS,
    RUN,
    SHOW,
    TERMINATED,
    TRUNCATED,
    FilledCounts,
    ObsArrays,
    make_boards,
    make_layout,
    make_obs_arrays,
)

_HEAD, _SEGMENT, _FOOD = (kind.name for kind in multi_snake.schema.entities)


class MultiSnakeBatch(SyncVecEnv):
    """Steps many boards of multi-snake together: a `VecEnvironment`. Needs the extra `fast`.

    Args:
        num_envs: how many boards.
        seed: seed of the run; the seeds of the episodes are those of a `VecEnv` with this one.
        autoreset: "same_step" begins the next episode at once; "next_step" shows the final
            observation first; "disabled" repeats it until `reset_envs`.
        board_size, num_snakes, max_snake_length, max_step: as for `multi_snake`.

    Raises:
        UsageError: a number or mode that makes no sense.
        MissingExtraError: numba is not installed.

    Arrays of a `VecObs` are views that stay valid until the next call that returns one; `episodes`
    never change. The first call that steps boards compiles, once per installation: it takes
    seconds.
    """

    def __init__(
        self,
        num_envs: int,
        *,
        seed: int = 0,
        autoreset: Autoreset = "same_step",
        board_size: int = 10,
        num_snakes: int = 2,
        max_snake_length: int = 11,
        max_step: int = 180,
    ) -> None:
        num_envs = checked_count("num_envs", num_envs)
        require_choice("autoreset", autoreset, get_args(Autoreset))
        seed = checked_seed(seed)
        game = multi_snake.with_settings(
            board_size=board_size,
            num_snakes=num_snakes,
            max_snake_length=max_snake_length,
            max_step=max_step,
        )
        require_playable(**game.settings)
        super().__init__(num_envs, 1, autoreset)
        self._step_boards = _load_kernel()
        layout = self._layout = make_layout(**game.settings)
        self._boards = make_boards(layout, num_envs)
        self._shown = make_obs_arrays(layout, num_envs)
        self._final = make_obs_arrays(layout, num_envs if autoreset == "same_step" else 0)
        self._ended = np.zeros((num_envs, 6), dtype=np.int64)
        self._all_move = np.full(num_envs, TO_MOVE, dtype=np.uint8)
        self._each = np.full(num_envs, self._layout.num_snakes, dtype=np.int64)
        self._one = np.ones(num_envs, dtype=np.int64)
        self._seed: int | None = seed
        self._num_actors = 0

    def obs_space(self) -> ObsSpace:
        return multi_snake.obs_space()

    def action_space(self) -> Mapping[ActionName, ActionSpace]:
        return multi_snake.action_space()

    def _reset(self, chosen: NDArray[np.bool_] | None, seed: int | None) -> VecObs:
        if chosen is None:
            chosen = np.ones(self.num_envs, dtype=np.bool_)
        seed = self._seed if seed is None else seed
        self._seed = None
        if seed is not None:
            seeds, envs = self._boards.seeds, np.flatnonzero(chosen)
            seeds[envs, : RUN + 1] = seed_pools(seed, envs)
            seeds[envs, NEXT] = 0
        return self._show(np.zeros(0, np.int64), np.where(chosen, BEGIN, SHOW).astype(np.uint8))

    def _ended_envs(self) -> list[int]:
        if self._num_actors == len(self._shown.actors):
            return []
        return np.flatnonzero(self._boards.snakes[:, OVER] != PLAYS).tolist()

    def _step(self, actions: Mapping[ActionName, NDArray[Any]]) -> VecObs:
        todo = self._all_move
        if self._num_actors < len(self._shown.actors):
            is_over = self._boards.snakes[:, OVER] != PLAYS
            todo = np.where(is_over, BEGIN, TO_MOVE).astype(np.uint8)
        return self._show(np.ascontiguousarray(actions[MOVE.name], dtype=np.int64), todo)

    def _show(self, moves: NDArray[np.int64], todo: NDArray[np.uint8]) -> VecObs:
        same_step = self.autoreset == "same_step"
        filled = self._step_boards(
            *(self._layout, self._boards, self._shown, self._final, self._ended),
            *(moves, todo, same_step),
        )
        self._num_actors = filled.actors
        shown = self._shown
        actors = RaggedArray.unchecked(shown.actors[: filled.actors], shown.counts[1])
        obs = VecObs(
            features=self._features(shown, self.num_envs, filled.entities),
            visible={},
            action_masks={MOVE.name: VecCategoricalActionMask(actors)},
            reward=shown.numbers[1],
            terminated=shown.flags[0],
            truncated=shown.flags[1],
            env_id=self._env_id,
            agent_id=self._agent_id,
        )
        self._obs = obs
        if filled.ended:
            ended = self._ended[: filled.ended].copy()
            max_grown = self._layout.num_snakes * self._layout.max_segments
            obs.episodes = LazyEpisodes(len(ended), partial(_episodes, ended, max_grown))
            obs.final = self._last_obs(obs, ended, filled.final_entities)
        return obs

    def _last_obs(self, obs: VecObs, ended: NDArray[np.int64], end: int) -> VecObs:
        env_id, num_rows = ended[:, ENDED_ENV].copy(), len(ended)
        if self.autoreset == "same_step":
            features = self._features(self._final, num_rows, end)
        else:
            features = {name: rows[env_id] for name, rows in obs.features.items()}
        num_snakes = self._layout.num_snakes
        is_truncated = ended[:, ENDED_OVER] == TRUNCATED
        heads = np.tile(np.arange(num_snakes), int(is_truncated.sum()))  # the first entities
        actors = RaggedArray.unchecked(heads, is_truncated * num_snakes)
        return VecObs(
            features=features,
            visible={},
            action_masks={MOVE.name: VecCategoricalActionMask(actors)},
            reward=obs.reward[env_id],
            terminated=obs.terminated[env_id],
            truncated=obs.truncated[env_id],
            env_id=env_id,
            agent_id=self._agent_id[:num_rows],
            episodes=obs.episodes,
        )

    def _features(
        self, shown: ObsArrays, num_rows: int, end: int
    ) -> dict[EntityName, RaggedArray[np.float32]]:
        """The features of the first rows, whose last segment ends there."""
        num_heads, food = (
            num_rows * self._layout.num_snakes,
            self.num_envs * self._layout.num_snakes,
        )
        entities, each, ragged = shown.entities, self._each[:num_rows], RaggedArray.unchecked
        return {
            _HEAD: ragged(entities[:num_heads], each),
            _SEGMENT: ragged(entities[2 * food : end], shown.counts[0, :num_rows]),
            _FOOD: ragged(entities[food : food + num_heads], each),
            GLOBAL_ENTITY: ragged(shown.numbers[0, :num_rows, np.newaxis], self._one[:num_rows]),
        }


def _episodes(ended: NDArray[np.int64], max_grown: int) -> list[Episode]:
    """Summaries of episodes; in a perfect one the snakes of a board grow by `max_grown`."""
    return [
        Episode(
            reward=grown / max_grown,
            length=step,
            terminated=over == TERMINATED,
            truncated=over == TRUNCATED,
            seed=seed,
            number=number,
            env_id=env_id,
        )
        for env_id, grown, step, over, seed, number in ended.tolist()
    ]


def _load_kernel() -> Callable[..., FilledCounts]:
    if not has_numba():
        raise MissingExtraError("numba", "fast", "MultiSnakeBatch")
    from entity_env.games.multi_snake_batch import kernels

    return kernels.step_boards
