"""MultiSnakeBatch: many boards as a `VecEnvironment`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Final, Literal, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from entity_env.core.episode import Episode
from entity_env.core.ragged import RaggedArray
from entity_env.core.spaces import GLOBAL_ENTITY, ActionName, ActionSpace, EntityName, ObsSpace
from entity_env.core.validation import (
    checked_count,
    checked_mask,
    checked_seed,
    has_numba,
    require_choice,
)
from entity_env.core.vec_actions import checked_vec_actions
from entity_env.core.vec_obs import VecActionMask, VecActions, VecCategoricalActionMask, VecObs
from entity_env.errors import (
    ClosedError,
    MissingExtraError,
    ProtocolError,
    UsageError,
)
from entity_env.games.multi_snake import MOVE, multi_snake, require_playable
from entity_env.games.multi_snake_batch.draws import seed_pools
from entity_env.games.multi_snake_batch.state import (
    BEGIN,
    ENDED_ENV,
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

Autoreset: TypeAlias = Literal["same_step", "next_step", "disabled"]
"""When the next episode of a board begins; see `entity_env.vec.Autoreset`."""

_MODES: Final = ("same_step", "next_step", "disabled")
_HEAD, _SEGMENT, _FOOD = (kind.name for kind in multi_snake.schema.entities)
_NO_ACTORS: Final[NDArray[np.int64]] = np.zeros(0, dtype=np.int64)


class FinishedEpisodes(Sequence[Episode]):
    """Summaries of the episodes that a step has ended, made when read.

    Args:
        ended: `(num_episodes, 6)`, kept.
        max_grown: how much all snakes of a board grow in a perfect episode.
    """

    def __init__(self, ended: NDArray[np.int64], max_grown: int) -> None:
        self._ended = ended
        self._max_grown = max_grown

    @cached_property
    def _made(self) -> list[Episode]:
        return [
            Episode(
                reward=grown / self._max_grown,
                length=step,
                terminated=over == TERMINATED,
                truncated=over == TRUNCATED,
                seed=seed,
                number=number,
                env_id=env_id,
            )
            for env_id, grown, step, over, seed, number in self._ended.tolist()
        ]

    @overload
    def __getitem__(self, index: int) -> Episode: ...

    @overload
    def __getitem__(self, index: slice) -> list[Episode]: ...

    def __getitem__(self, index: int | slice) -> Episode | list[Episode]:
        return self._made[index]

    def __len__(self) -> int:
        return len(self._ended)

    def __repr__(self) -> str:
        return repr(self._made)


class MultiSnakeBatch:
    """Steps many boards of multi-snake together: a `VecEnvironment`. Needs the extra `fast`.

    Args:
        num_envs: how many boards.
        seed: seed of the run; the seeds of the episodes are those of a `VecEnv` with this one.
        autoreset: "same_step" begins the next episode at once, with the final observation of the
            old one in `VecObs.final`; "next_step" returns the final observation first; "disabled"
            repeats it until `reset_envs`.
        board_size, num_snakes, max_snake_length, max_step: as for `multi_snake`.
        compiled: True or None; there is no version without numba.

    Raises:
        UsageError: a number or mode that makes no sense, or `compiled=False`.
        MissingExtraError: numba is not installed.

    Arrays of a `VecObs` are views that stay valid until the next call that returns one; `episodes`
    never change. The first call that steps boards compiles, once per installation: it takes
    seconds.
    """

    num_agents: Final = 1

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
        compiled: bool | None = None,
    ) -> None:
        checked_count("num_envs", num_envs)
        require_choice("autoreset", autoreset, _MODES)
        checked_seed(seed)  # a bad one fails here rather than at the first reset
        game = multi_snake.with_settings(
            board_size=board_size,
            num_snakes=num_snakes,
            max_snake_length=max_snake_length,
            max_step=max_step,
        )
        require_playable(**game.settings)
        self.num_envs = self.num_rows = int(num_envs)
        self.autoreset: Autoreset = autoreset
        self._step_boards = _load_kernel(compiled)
        layout = self._layout = make_layout(**game.settings)
        self._boards = make_boards(layout, num_envs)
        self._shown = make_obs_arrays(layout, num_envs)
        self._final = make_obs_arrays(layout, num_envs if autoreset == "same_step" else 0)
        self._ended = np.zeros((num_envs, 6), dtype=np.int64)
        self._all_move = np.full(num_envs, TO_MOVE, dtype=np.uint8)
        self._env_id = np.arange(num_envs, dtype=np.int64)
        self._agent_id = np.zeros(num_envs, dtype=np.int64)
        self._each = np.full(num_envs, self._layout.num_snakes, dtype=np.int64)
        self._one = np.ones(num_envs, dtype=np.int64)
        self._seed: int | None = seed
        self._num_actors = 0
        self._masks: Mapping[ActionName, VecActionMask] = {}
        """Of the last batch."""
        self._is_playing = False
        self._is_closed = False
        self._moves: NDArray[np.int64] | None = None
        """Those that were sent."""

    def obs_space(self) -> ObsSpace:
        return multi_snake.obs_space()

    def action_space(self) -> Mapping[ActionName, ActionSpace]:
        return multi_snake.action_space()

    def reset(self, seed: int | None = None) -> VecObs:
        """Begins a new episode on every board.

        Args:
            seed: begins a new run with this seed; None goes on to the next episodes of the run.

        Raises:
            ClosedError: after `close`.
            UsageError: a seed that is no integer, or negative.
        """
        self._require_open()
        seed = self._seed if seed is None else seed
        if seed is not None:
            checked_seed(seed)
        self._seed = self._moves = None
        self._is_playing = True
        return self._begin(np.ones(self.num_envs, dtype=np.bool_), seed)

    def reset_envs(
        self, mask: NDArray[np.bool_] | Sequence[bool], seed: int | None = None
    ) -> VecObs:
        """Begins a new episode on the chosen boards, with autoreset disabled.

        All others repeat their last observation and flags, with a reward of 0 and nothing in
        `episodes`.

        Args:
            mask: `(num_envs,)` bool, True = reset.
            seed: begins a new run with this seed on those boards; None goes on.

        Raises:
            ClosedError, UsageError: as `reset` does.
            ProtocolError: before `reset`, between `send` and `recv`, or with autoreset on.
            SchemaError: a mask of another shape or dtype.
        """
        if self.autoreset != "disabled":
            raise ProtocolError(
                f'reset_envs needs autoreset="disabled", this MultiSnakeBatch has '
                f"{self.autoreset!r}"
            )
        self._require_reset()
        if self._moves is not None:
            raise ProtocolError("actions were sent: call recv before reset_envs")
        chosen = checked_mask(mask, self.num_envs)
        if seed is not None:
            checked_seed(seed)
        return self._begin(chosen, seed)

    def act(self, actions: VecActions) -> VecObs:
        """Moves all snakes and returns the next observations.

        Args:
            actions: `Move`, one value from 0 to 3 for every actor of the last batch: a flat array
                of integers, or a `RaggedArray` with the lengths of `action_masks["Move"].actors`.

        Raises:
            ClosedError: after `close`.
            ProtocolError: before `reset`, between `send` and `recv`, or while an episode is over
                and autoreset disabled.
            SchemaError: actions that do not fit; nothing has changed then.
        """
        return self._step(self._checked(actions))

    def send(self, actions: VecActions) -> None:
        """The first half of `act`: checks the actions and keeps a copy; raises what `act` does."""
        self._moves = self._checked(actions).copy()

    def recv(self) -> VecObs:
        """The second half of `act`.

        Raises:
            ClosedError: after `close`.
            ProtocolError: no actions were sent.
        """
        self._require_reset()
        if self._moves is None:
            raise ProtocolError("no actions were sent: call send before recv")
        moves, self._moves = self._moves, None
        return self._step(moves)

    def close(self) -> None:
        """Refuses all further steps; may be called twice."""
        self._is_closed = True

    def __len__(self) -> int:
        return self.num_rows

    def __enter__(self) -> MultiSnakeBatch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _begin(self, chosen: NDArray[np.bool_], seed: int | None) -> VecObs:
        if seed is not None:
            seeds, envs = self._boards.seeds, np.flatnonzero(chosen)
            seeds[envs, : RUN + 1] = seed_pools(int(seed), envs)
            seeds[envs, NEXT] = 0
        return self._show(np.zeros(0, np.int64), np.where(chosen, BEGIN, SHOW).astype(np.uint8))

    def _checked(self, actions: VecActions) -> NDArray[np.int64]:
        self._require_reset()
        if self._moves is not None:
            raise ProtocolError("actions were sent already: call recv before the next actions")
        if self.autoreset == "disabled" and self._num_actors < len(self._shown.actors):
            over = np.flatnonzero(self._boards.snakes[:, OVER] != PLAYS)
            raise ProtocolError(
                f"the episodes of environments {over[:20].tolist()} have ended: call reset_envs "
                "for them before act"
            )
        values = checked_vec_actions(actions, self._masks, self.action_space(), "env {}".format)
        return np.ascontiguousarray(values[MOVE.name], dtype=np.int64)

    def _step(self, moves: NDArray[np.int64]) -> VecObs:
        todo = self._all_move
        if self._num_actors < len(self._shown.actors):
            is_over = self._boards.snakes[:, OVER] != PLAYS
            todo = np.where(is_over, BEGIN, TO_MOVE).astype(np.uint8)
        return self._show(moves, todo)

    def _show(self, moves: NDArray[np.int64], todo: NDArray[np.uint8]) -> VecObs:
        """Carries out the commands, and makes the batch."""
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
        self._masks = obs.action_masks
        if filled.ended:
            ended = self._ended[: filled.ended].copy()
            max_grown = self._layout.num_snakes * self._layout.max_segments
            obs.episodes = FinishedEpisodes(ended, max_grown)
            if same_step:
                obs.final = self._last_obs(obs, ended, filled.final_entities)
        return obs

    def _last_obs(self, obs: VecObs, ended: NDArray[np.int64], end: int) -> VecObs:
        """The final observations of episodes; no entity acts."""
        env_id, num_rows = ended[:, ENDED_ENV].copy(), len(ended)
        no_actors = RaggedArray.unchecked(_NO_ACTORS, np.zeros(num_rows, dtype=np.int64))
        return VecObs(
            features=self._features(self._final, num_rows, end),
            visible={},
            action_masks={MOVE.name: VecCategoricalActionMask(no_actors)},
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

    def _require_open(self) -> None:
        if self._is_closed:
            raise ClosedError("this MultiSnakeBatch is closed: make a new one")

    def _require_reset(self) -> None:
        self._require_open()
        if not self._is_playing:
            raise ProtocolError("nothing is being played: call reset first")


def _load_kernel(compiled: bool | None) -> Callable[..., FilledCounts]:
    if compiled is False:
        raise UsageError("MultiSnakeBatch: there is no version without numba: leave `compiled` out")
    if not has_numba():
        raise MissingExtraError("numba", "fast", "MultiSnakeBatch")
    from entity_env.games.multi_snake_batch import kernels

    return kernels.step_boards
