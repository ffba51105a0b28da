"""MultiSnakeBatch: a `VecEnv` source that steps many boards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from entity_env import (
    GLOBAL_ENTITY,
    EntityName,
    Episode,
    Game,
    RaggedArray,
    VecCategoricalActionMask,
    VecObs,
)
from entity_env.core.episode_stats import LazyEpisodes
from entity_env.core.seeding import Run
from entity_env.core.validation import has_numba
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
    SEED,
    SHOW,
    TERMINATED,
    TRUNCATED,
    FilledCounts,
    ObsArrays,
    make_boards,
    make_layout,
    make_obs_arrays,
)
from entity_env.vec import Autoreset
from entity_env.vec.batch_env import ActionValues, ArrayBatch, BatchSource

_HEAD, _SEGMENT, _FOOD = (kind.name for kind in multi_snake.schema.entities)


@dataclass(frozen=True)
class MultiSnakeBatch(BatchSource):
    """`VecEnv` source that steps many boards of multi-snake together in compiled code.

    Needs the extra `fast`. The first reset compiles, which takes seconds, once per installation.
    Episode seeds match a `VecEnv` of `multi_snake` with the same seed.

        with VecEnv(MultiSnakeBatch(num_snakes=2), 1024, seed=1) as vec: ...

    Args:
        board_size, num_snakes, max_snake_length, max_step: as for `multi_snake`.

    Raises:
        UsageError: a setting out of range.
        MissingExtraError: numba is not installed.
    """

    has_episode_seeds: ClassVar[bool] = True

    board_size: int = 10
    num_snakes: int = 2
    max_snake_length: int = 11
    max_step: int = 180

    def __post_init__(self) -> None:
        require_playable(**self._game().settings)
        if not has_numba():
            raise MissingExtraError("numba", "fast", "MultiSnakeBatch")

    def make(self, envs: range, num_envs: int, autoreset: Autoreset) -> Boards:
        return Boards(self._game(), envs, autoreset)

    def _game(self) -> Game:
        return multi_snake.with_settings(**asdict(self))


class Boards(ArrayBatch):
    """The boards of one process.

    Args:
        game: `multi_snake` with its settings.
        autoreset: "same_step" starts the next episode at once; "next_step" shows the final
            observation for one step first; "disabled" repeats the final observation until a reset.
    """

    def __init__(self, game: Game, envs: range, autoreset: Autoreset) -> None:
        from entity_env.games.multi_snake_batch.kernels import step_boards

        num_envs = len(envs)
        super().__init__(num_envs, 1, (game.obs_space(), game.action_space()), envs.start)
        self._step_boards: Callable[..., FilledCounts] = step_boards
        self._is_same_step = autoreset == "same_step"
        layout = self._layout = make_layout(**game.settings)
        self._boards = make_boards(layout, num_envs)
        self._shown = make_obs_arrays(layout, num_envs)
        self._final = make_obs_arrays(layout, num_envs if self._is_same_step else 0)
        self._ended = np.zeros((num_envs, 6), dtype=np.int64)
        self._all_move = np.full(num_envs, TO_MOVE, dtype=np.uint8)
        self._each = np.full(num_envs, self._layout.num_snakes, dtype=np.int64)
        self._one = np.ones(num_envs, dtype=np.int64)
        self._heads = np.tile(np.arange(layout.num_snakes), num_envs)
        """Indices of the actors within their rows: the heads are the first entities."""

    def begin(self, env_ids: Sequence[int], runs: dict[int, Run]) -> VecObs:
        seeds, by_seed = self._boards.seeds, dict[int, list[int]]()
        for i, (run, number) in runs.items():
            by_seed.setdefault(run.seed, []).append(i)
            seeds[i, NEXT] = number
        for seed, ids in by_seed.items():
            env_id = np.array([runs[i][0].env_id for i in ids], np.int64)
            seeds[ids, : RUN + 1] = seed_pools(seed, env_id)
        todo = np.full(self.num_envs, SHOW, np.uint8)
        todo[list(env_ids)] = BEGIN
        return self._show(np.zeros(0, np.int64), todo)

    def advance(self, values: ActionValues) -> VecObs:
        todo = self._all_move
        if self.over is not None:
            todo = np.where(self.over, BEGIN, TO_MOVE).astype(np.uint8)
        return self._show(np.ascontiguousarray(values[MOVE.name], dtype=np.int64), todo)

    def numbers(self, env_id: int) -> Sequence[int]:
        return (int(self._boards.seeds[env_id, NEXT]) - (not self.is_env_over(env_id)),)

    def seed_of(self, env_id: int, *, is_over: bool) -> int:
        return int(self._boards.seeds[env_id, SEED])

    def _show(self, moves: NDArray[np.int64], todo: NDArray[np.uint8]) -> VecObs:
        filled = self._step_boards(
            *(self._layout, self._boards, self._shown, self._final, self._ended),
            *(moves, todo, self._is_same_step),
        )
        shown = self._shown
        is_any_over = filled.actors < len(shown.actors)
        self.over = self._boards.snakes[:, OVER] != PLAYS if is_any_over else None
        actors = RaggedArray.unchecked(shown.actors[: filled.actors], shown.counts[1])
        obs = VecObs(
            features=self._features(shown, self.num_envs, filled.entities),
            visible={},
            action_masks={MOVE.name: VecCategoricalActionMask(actors)},
            reward=shown.numbers[1],
            terminated=shown.flags[0],
            truncated=shown.flags[1],
            env_id=self.env_id,
            agent_id=self.agent_id,
        )
        if filled.ended:
            ended = self._ended[: filled.ended].copy()
            max_grown = self._layout.num_snakes * self._layout.max_segments
            obs.episodes = LazyEpisodes(len(ended), partial(_episodes, ended, max_grown))
            obs.final = self._last_obs(obs, ended, filled.final_entities)
        return obs

    def _last_obs(self, obs: VecObs, ended: NDArray[np.int64], end: int) -> VecObs:
        env_id, num_rows = ended[:, ENDED_ENV].copy(), len(ended)
        if self._is_same_step:
            features = self._features(self._final, num_rows, end)
        else:
            features = {name: rows[env_id] for name, rows in obs.features.items()}
        num_snakes = self._layout.num_snakes
        is_truncated = ended[:, ENDED_OVER] == TRUNCATED
        heads = self._heads[: int(is_truncated.sum()) * num_snakes]
        actors = RaggedArray.unchecked(heads, is_truncated * num_snakes)
        return VecObs(
            features=features,
            visible={},
            action_masks={MOVE.name: VecCategoricalActionMask(actors)},
            reward=obs.reward[env_id],
            terminated=obs.terminated[env_id],
            truncated=obs.truncated[env_id],
            env_id=env_id,
            agent_id=self.agent_id[:num_rows],
            episodes=obs.episodes,
        )

    def _features(
        self, shown: ObsArrays, num_rows: int, end: int
    ) -> dict[EntityName, RaggedArray[np.float32]]:
        """Features of the first `num_rows` rows, whose last segment ends at index `end`."""
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
    """Summaries of finished episodes; `max_grown`: segments of a board's snakes at full length."""
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
