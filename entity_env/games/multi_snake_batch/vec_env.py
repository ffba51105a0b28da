"""MultiSnakeBatch: many boards behind the interface of a `VecEnv`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from entity_env.core.ragged import RaggedArray
from entity_env.core.spaces import GLOBAL_ENTITY, ActionName, ActionSpace, EntityName, ObsSpace
from entity_env.core.validation import (
    checked_count,
    checked_mask,
    checked_seed,
    has_numba,
    require_choice,
)
from entity_env.core.vec_actions import checked_actions
from entity_env.core.vec_obs import VecActionMask, VecActions, VecCategoricalActionMask, VecObs
from entity_env.errors import (
    ClosedError,
    MissingExtraError,
    ProtocolError,
)
from entity_env.games.multi_snake import MOVE, multi_snake, require_playable
from entity_env.games.multi_snake_batch import plain
from entity_env.games.multi_snake_batch.draws import runs
from entity_env.games.multi_snake_batch.episodes import Episodes
from entity_env.games.multi_snake_batch.state import (
    BEGIN,
    ENDED_ENV,
    MOVE as TO_MOVE,
    NEXT,
    OVER,
    PLAYS,
    RUN,
    SHOW,
    Kernel,
    Shown,
    make_boards,
    make_rules,
    make_shown,
)

Autoreset: TypeAlias = Literal["same_step", "next_step", "disabled"]
"""What happens to a board whose episode has ended; see `entity_env.vec.Autoreset`."""

_MODES: Final = ("same_step", "next_step", "disabled")
_HEAD, _SEGMENT, _FOOD = (kind.name for kind in multi_snake.schema.entities)
_NOBODY: Final[NDArray[np.int64]] = np.zeros(0, dtype=np.int64)


class MultiSnakeBatch:
    """Steps many boards of multi-snake together: a `VecEnvironment`.

    Without numba, the extra `fast`, the same is done with numpy, 13 times slower.

    Args:
        num_envs: how many boards.
        seed: seed of the run; the seeds of the episodes are those of a `VecEnv` with this one.
        autoreset: what happens to ended episodes: "same_step" begins the next one at once, with the
            last observations of the old in `VecObs.final`; "next_step" shows the last observation
            first; "disabled" shows it until `reset_envs`.
        board_size, num_snakes, max_snake_length, max_step: as for `multi_snake`.
        compiled: with numba, or with numpy alone; None = with numba when it is installed.

    Raises:
        UsageError: a number or mode that makes no sense.
        MissingExtraError: `compiled` without numba.

    Arrays of a `VecObs` are views that stay valid until the next call that returns one; `episodes`
    stay what they are. The call that is the first to step boards compiles, once per installation:
    it takes seconds.
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
        self._advance = _kernel(compiled)
        self._rules = make_rules(**game.settings)
        self._boards = make_boards(self._rules, num_envs)
        self._shown = make_shown(self._rules, num_envs)
        self._final = make_shown(self._rules, num_envs if autoreset == "same_step" else 0)
        self._ended = np.zeros((num_envs, 6), dtype=np.int64)
        self._all_move = np.full(num_envs, TO_MOVE, dtype=np.uint8)
        self._env_id = np.arange(num_envs, dtype=np.int64)
        self._agent_id = np.zeros(num_envs, dtype=np.int64)
        self._each = np.full(num_envs, self._rules.num_snakes, dtype=np.int64)
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
        """What can be observed."""
        return multi_snake.obs_space()

    def action_space(self) -> Mapping[ActionName, ActionSpace]:
        """What can be done."""
        return multi_snake.action_space()

    def reset(self, seed: int | None = None) -> VecObs:
        """Begins a new episode on every board, whatever its state.

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

        All others show once more what they showed last, with the same flags, but a reward of 0 and
        nothing in `episodes`.

        Args:
            mask: `(num_envs,)` bool, True = reset.
            seed: begins a new run with this seed on those boards; None goes on.

        Raises:
            ClosedError: after `close`.
            ProtocolError: before `reset`, between `send` and `recv`, or with autoreset on.
            SchemaError: a mask of another shape or dtype.
            UsageError: a seed that is no integer, or negative.
        """
        if self.autoreset != "disabled":
            raise ProtocolError(
                f'reset_envs needs autoreset="disabled", this MultiSnakeBatch has '
                f"{self.autoreset!r}"
            )
        self._require_reset()
        if self._moves is not None:
            raise ProtocolError("the boards are under way: call recv before reset_envs")
        chosen = checked_mask(mask, self.num_envs)
        if seed is not None:
            checked_seed(seed)
        return self._begin(chosen, seed)

    def act(self, actions: VecActions) -> VecObs:
        """Moves all snakes and returns what there is to see then.

        Args:
            actions: `Move`, one value from 0 to 3 for every actor of the last batch: a flat array
                of integers, or a `RaggedArray` with the lengths of `action_masks["Move"].actors`.

        Raises:
            ClosedError: after `close`.
            ProtocolError: before `reset`, between `send` and `recv`, or while an episode is over
                and autoreset disabled.
            SchemaError: actions that do not fit; nothing has happened then, and a right call works.
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
        """Refuses all further steps; may be called twice. There is nothing else to end."""
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
            seeds[envs, : RUN + 1] = runs(int(seed), envs)
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
        values = checked_actions(actions, self._masks, self.action_space(), "env {}".format)
        return np.ascontiguousarray(values[MOVE.name], dtype=np.int64)

    def _step(self, moves: NDArray[np.int64]) -> VecObs:
        todo = self._all_move
        if self._num_actors < len(self._shown.actors):
            is_over = self._boards.snakes[:, OVER] != PLAYS
            todo = np.where(is_over, BEGIN, TO_MOVE).astype(np.uint8)
        return self._show(moves, todo)

    def _show(self, moves: NDArray[np.int64], todo: NDArray[np.uint8]) -> VecObs:
        """Does what is to be done, and makes the batch."""
        goes_on = self.autoreset == "same_step"
        filled = self._advance(
            *(self._rules, self._boards, self._shown, self._final, self._ended),
            *(moves, todo, goes_on),
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
            obs.episodes = Episodes(ended, self._rules.num_snakes * self._rules.max_segments)
            if goes_on:
                obs.final = self._last_obs(obs, ended, filled.final_entities)
        return obs

    def _last_obs(self, obs: VecObs, ended: NDArray[np.int64], end: int) -> VecObs:
        """The last observations of episodes: nobody is asked for anything."""
        env_id, num_rows = ended[:, ENDED_ENV].copy(), len(ended)
        nobody = RaggedArray.unchecked(_NOBODY, np.zeros(num_rows, dtype=np.int64))
        return VecObs(
            features=self._features(self._final, num_rows, end),
            visible={},
            action_masks={MOVE.name: VecCategoricalActionMask(nobody)},
            reward=obs.reward[env_id],
            terminated=obs.terminated[env_id],
            truncated=obs.truncated[env_id],
            env_id=env_id,
            agent_id=self._agent_id[:num_rows],
            episodes=obs.episodes,
        )

    def _features(
        self, shown: Shown, num_rows: int, end: int
    ) -> dict[EntityName, RaggedArray[np.float32]]:
        """What so many rows show, whose last segment ends there."""
        num_heads, food = num_rows * self._rules.num_snakes, self.num_envs * self._rules.num_snakes
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


def _kernel(is_compiled: bool | None) -> Kernel:
    if is_compiled and not has_numba():
        raise MissingExtraError("numba", "fast", "MultiSnakeBatch(compiled=True)")
    if is_compiled or (is_compiled is None and has_numba()):
        from entity_env.games.multi_snake_batch import kernels as compiled

        return compiled.advance
    return plain.advance
