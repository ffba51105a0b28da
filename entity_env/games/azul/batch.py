"""AzulBatch: many games of Azul stepped together, as arrays.

Entities and features:
    Azul: the 306 numbers of `FeatureExtractor`, seen by the current player.
Actions:
    Move: an id from 0 to 299; `legal_masks` says which are legal.
Reward:
    reward of the player that made the move; `player_rewards` has the rewards of all players.
Terminated when:
    the rules end the game.
Truncated when:
    `max_rounds` rounds have been played, if it is set.
Example:
    >>> from entity_env.games.azul import AzulBatch
    >>> batch = AzulBatch(num_envs=64)
    >>> batch.reset(seed=1)
    >>> for _ in range(100):
    ...     result = batch.step_no_reset_with_result(batch.legal_masks.argmax(axis=1))
    ...     batch.reset_envs(result.to_reset_mask())
    >>> result.observations.shape
    (64, 306)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from entity_env import ActionName, ActionSpace, Entity, GlobalCategoricalActionSpace, ObsSpace
from entity_env.core.validation import checked_index, has_numba
from entity_env.core.vec_env_base import splitmix64
from entity_env.games.azul.engine.actions import ACTION_SPACE_SIZE, ACTIONS, IllegalAction
from entity_env.games.azul.engine.engine import illegal
from entity_env.games.azul.engine.rules import MAX_PLAYERS
from entity_env.games.azul.engine.state import GameState
from entity_env.games.azul.engine.tile_draws import SplitMix
from entity_env.games.azul.env import EnvConfig, RewardScheme
from entity_env.games.azul.features import FEATURE_NAMES
from entity_env.games.azul.kernels.kernel import machine_code
from entity_env.games.azul.kernels.observation import OBS_SIZE
from entity_env.games.azul.kernels.packed_state import NUM_WORDS
from entity_env.games.azul.kernels.step import (
    NO_LIMIT,
    BatchArrays,
    begin_batch,
    first_illegal,
    step_batch,
)
from entity_env.vec.batch_env import (
    BatchActions,
    BatchEnv,
    BatchSeed,
    ResetMask,
    StepResult,
    checked_actions,
    require_reset_mask,
)

ENTITY: Final = "Azul"
ACTION: Final = "Move"
_SPACE: Final = GlobalCategoricalActionSpace([str(action) for action in ACTIONS])


class AzulBatch(BatchEnv):
    """A batch of games; see the module docstring.

    `step` resets games that end. After the other step methods, reset ended games before the next
    step.

    An environment with seed s (see `env_seeds`) draws tiles like `SplitMix(splitmix64_int(s))`, so
    it plays identical games with and without numba.

    Args:
        num_players, reward_scheme, starting_player, max_rounds: see `EnvConfig`.

    Raises:
        UsageError: an invalid value.
    """

    is_always_finite = True

    def __init__(
        self,
        num_envs: int,
        *,
        num_players: int = 2,
        reward_scheme: RewardScheme
        | Literal["DenseScoreDelta", "TerminalOnly"] = RewardScheme.DenseScoreDelta,
        starting_player: int | Literal["random"] = 0,
        max_rounds: int | None = None,
    ) -> None:
        super().__init__(num_envs, OBS_SIZE)
        self.config: Final = EnvConfig(
            num_players=num_players,
            reward_scheme=reward_scheme,
            starting_player=starting_player,
            max_rounds=max_rounds,
        )
        arrays = self._arrays = _zeros(self.num_envs)
        words: Any = np.zeros((self.num_envs, NUM_WORDS), np.int64)
        self._words = words if has_numba() else words.tolist()
        self._result = StepResult(
            arrays.observations, arrays.rewards, arrays.terminals, arrays.truncations
        )
        self._ended = np.zeros(0, np.int64)
        limit = NO_LIMIT if max_rounds is None else min(max_rounds, NO_LIMIT)
        self._rules = limit, self.config.reward_scheme is RewardScheme.DenseScoreDelta

    @property
    def legal_masks(self) -> NDArray[np.bool_]:
        """Legal actions of the current player, `(num_envs, 300)` bool; all False in ended episodes.

        This and the next two properties are views, valid as long as the `StepResult` arrays.
        """
        return self._arrays.legal_masks

    @property
    def current_players(self) -> NDArray[np.int64]:
        """`(num_envs,)` int64, player to move; in terminated games, the player of the last move."""
        return self._arrays.current_players

    @property
    def player_rewards(self) -> NDArray[np.float32]:
        """Rewards of the last step by seat, `(num_envs, 4)` float32; 0 in unused seats. The end of
        a round changes the scores of all players."""
        return self._arrays.player_rewards

    def state(self, env_id: int) -> GameState:
        """Copy of a game's position; later draws match the game's.

        Raises:
            ClosedError: after `close`.
            ProtocolError: before `reset`.
            UsageError: no such environment.
        """
        self._require_begun("state")
        return self._state(checked_index("env_id", env_id, self.num_envs))

    def _state(self, env_id: int) -> GameState:
        words = [int(word) for word in self._words[env_id]]
        return GameState(words, SplitMix(int(self._arrays.streams[env_id])))

    def obs_space(self) -> ObsSpace:
        return ObsSpace(entities={ENTITY: Entity(FEATURE_NAMES)})

    def action_space(self) -> Mapping[ActionName, ActionSpace]:
        return {ACTION: _SPACE}

    def reset(self, seed: BatchSeed | None = None) -> None:
        self._require_open("reset")
        if seed is None and not self._is_reset:
            seed = self._new_seed()
        everyone = np.arange(self.num_envs)
        self._seed(everyone, seed)
        self._arrays.rewards[:] = 0
        self._arrays.player_rewards[:] = 0
        self._begin(everyone)
        self._find_ended()
        self._is_reset = True

    def step(self, actions: BatchActions) -> None:
        self.step_no_reset(actions)
        if len(self._ended):
            self._begin(self._ended)
            self._find_ended()

    def step_no_reset_with_result(self, actions: BatchActions) -> StepResult:
        self._require_begun("step")
        if len(self._ended):
            raise self._not_reset("step", self._ended)
        given = checked_actions(f"AzulBatch: {ACTION}", actions, self.num_envs, _SPACE)
        checked = np.ascontiguousarray(given, np.int64)
        env_id = self._run(first_illegal)(self._words, checked)
        if env_id >= 0:
            reason = illegal(self._state(env_id), ACTIONS[checked[env_id]])
            raise IllegalAction(f"{reason}, in environment {env_id}; nothing was stepped")
        self._run(step_batch)(checked, *self._rules, self._words, *self._arrays)
        self._find_ended()
        return self._result

    def reset_envs(self, mask: ResetMask, seed: BatchSeed | None = None) -> None:
        self._require_begun("reset_envs")
        require_reset_mask("AzulBatch", mask, self.num_envs)
        env_ids = mask.indices()
        self._seed(env_ids, seed)
        if len(env_ids):
            self._begin(env_ids)
            self._find_ended()

    def view(self) -> StepResult:
        self._require_begun("view")
        return self._result

    def _run(self, kernel: Callable[..., object]) -> Any:  # noqa: ANN401 - takes lists or arrays
        return kernel if isinstance(self._words, list) else machine_code(kernel)

    def _begin(self, env_ids: NDArray[np.int64]) -> None:
        start = self.config.starting_player
        first = -1 if start == "random" else int(start)
        self._run(begin_batch)(env_ids, self.config.num_players, first, self._words, self._arrays)

    def _seed(self, env_ids: NDArray[np.int64], seed: BatchSeed | None) -> None:
        """Restarts the draws of some environments, unless the seed is None."""
        if seed is not None:
            self._arrays.streams[env_ids] = splitmix64(self.env_seeds(seed, env_ids))

    def _find_ended(self) -> None:
        self._ended = np.flatnonzero(self._arrays.terminals | self._arrays.truncations)


def _zeros(num_envs: int) -> BatchArrays:
    return BatchArrays(
        observations=np.zeros((num_envs, OBS_SIZE), np.float32),
        legal_masks=np.zeros((num_envs, ACTION_SPACE_SIZE), np.bool_),
        current_players=np.zeros(num_envs, np.int64),
        rewards=np.zeros(num_envs, np.float32),
        player_rewards=np.zeros((num_envs, MAX_PLAYERS), np.float32),
        terminals=np.zeros(num_envs, np.uint8),
        truncations=np.zeros(num_envs, np.uint8),
        streams=np.zeros(num_envs, np.uint64),
    )
