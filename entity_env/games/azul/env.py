"""AzulEnv: Azul as an environment stepped by action ids.

Observations:
    306 numbers per player, seen from that player's seat; see the table in `azul/features.py`.
Actions:
    an id from 0 to 299, `(source * 5 + colour) * 6 + destination`; the mask marks legal ids.
Reward:
    `DenseScoreDelta`: the change of each player's score, including final bonuses.
    `TerminalOnly`: 0 until the game is over, then the final score minus the mean of all players.
Terminated when:
    the rules end the game: a row is full, or no wall can ever change again.
Truncated when:
    `max_rounds` rounds have been played, if it is set.
Example:
    >>> import numpy as np
    >>> from entity_env.games.azul import AzulEnv
    >>> env = AzulEnv(seed=1)
    >>> step = env.reset()
    >>> while not step.done:
    ...     step = env.step(int(np.flatnonzero(step.legal_action_mask)[0]))
    >>> step.truncated
    False
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from entity_env.core.validation import Range, check_settings, checked_index, checked_seed
from entity_env.errors import UsageError
from entity_env.games.azul.engine.actions import ACTION_SPACE_SIZE, ACTIONS, EpisodeDone, checked_id
from entity_env.games.azul.engine.engine import illegal, new_game
from entity_env.games.azul.engine.rules import MAX_PLAYERS, MIN_PLAYERS
from entity_env.games.azul.engine.state import GameState
from entity_env.games.azul.engine.tile_draws import Draw
from entity_env.games.azul.features import (
    FeatureExtractor,
    PositionEncoder,
    checked_obs_size,
    encoded,
)
from entity_env.games.azul.kernels.observation import OBS_SIZE
from entity_env.games.azul.kernels.step import ILLEGAL, OVER, Observations, Rewards
from entity_env.games.azul.single_game import FastGame, Mask

_zeros: Final = np.zeros


class RewardScheme(Enum):
    """Reward functions."""

    DenseScoreDelta = "DenseScoreDelta"
    """Change of each player's score; adds up to the final score."""
    TerminalOnly = "TerminalOnly"
    """At the end of the game, each score minus the mean score; 0 before it and if truncated."""


@dataclass(frozen=True)
class EnvConfig:
    """Settings of an environment, validated on creation.

    Attributes:
        num_players: 2 to 4.
        reward_scheme: a `RewardScheme` or its name.
        include_full_state_in_step: True makes `EnvStep.state` a copy of the position.
        starting_player: index of the first player; "random" draws it in every episode.
        max_rounds: rounds after which an episode is truncated; None = never.

    Raises:
        UsageError: an invalid value.
    """

    num_players: Annotated[int, Range(MIN_PLAYERS, MAX_PLAYERS)] = 2
    reward_scheme: RewardScheme | Literal["DenseScoreDelta", "TerminalOnly"] = (
        RewardScheme.DenseScoreDelta
    )
    include_full_state_in_step: bool = False
    starting_player: Annotated[int, Range(0)] | Literal["random"] = 0
    max_rounds: Annotated[int | None, Range(1)] = None

    def __post_init__(self) -> None:
        check_settings(self)
        object.__setattr__(self, "reward_scheme", RewardScheme(self.reward_scheme))
        if isinstance(self.starting_player, int):
            checked_index("starting_player", self.starting_player, self.num_players)


class EnvStep(NamedTuple):
    """Result of a step or reset, in new arrays.

    Attributes:
        observations: `(4, obs_size)` float32, one row per player, seen from that player's seat; 0
            in unused rows.
        rewards: `(4,)` float32; 0 after a reset and in unused seats.
        done: True if the episode is terminated or truncated.
        current_player: player to move; after termination, the player of the last move.
        legal_action_mask: `(300,)` bool, legal ids of `current_player`; all False when done.
        last_action: id that led here; None after a reset.
        state: copy of the position; None unless `include_full_state_in_step` is set.
        truncated: True if the episode is truncated.
    """

    observations: NDArray[np.float32]
    rewards: NDArray[np.float32]
    done: bool
    current_player: int
    legal_action_mask: NDArray[np.bool_]
    last_action: int | None
    state: GameState | None
    truncated: bool = False

    @property
    def terminated(self) -> bool:
        """True if the game has ended by its rules."""
        return self.done and not self.truncated


class AzulEnv:
    """Environment that plays Azul by action ids; see the module docstring.

    A seed and a sequence of actions determine the episodes, with or without numba.

    Args:
        features: encodes observations: a `FeatureExtractor` or any `PositionEncoder`. A custom
            encoder is tried once, on a starting position.
        seed: seed of all episodes, 0 or more; random by default.

    Raises:
        UsageError: an invalid argument.
        SchemaError: `features` does not return an array of `obs_size` numbers. `reset` and `step`
            raise it too, and change nothing then.
    """

    def __init__(
        self,
        config: EnvConfig | None = None,
        *,
        features: PositionEncoder | None = None,
        seed: int | None = None,
    ) -> None:
        if config is not None and not isinstance(config, EnvConfig):
            raise UsageError(f"AzulEnv: config must be an EnvConfig, got {config!r}")
        self.config: Final = EnvConfig() if config is None else config
        self.features: Final = FeatureExtractor() if features is None else features
        self.obs_size: Final = checked_obs_size(self.features)
        self._rng = np.random.default_rng(None if seed is None else checked_seed(seed))
        self._game: FastGame | None = None
        self._is_done = True
        # Kernels encode like `FeatureExtractor`; they cannot call another object.
        self._is_plain_features = type(self.features) is FeatureExtractor
        # True if the arrays filled by a game need no further work.
        self._is_plain = self._is_plain_features and not (
            self.config.include_full_state_in_step
            or self.config.reward_scheme is RewardScheme.TerminalOnly
            or self.config.max_rounds is not None
        )
        if not self._is_plain_features:
            first = new_game(self.config.num_players, rng=np.random.default_rng(0))
            encoded(self.features, self.obs_size, first, 0)
        self._filled_shape = (MAX_PLAYERS if self._is_plain_features else 0, OBS_SIZE)

    @property
    def done(self) -> bool:
        """Whether no episode is in progress: before the first reset and after an episode."""
        return self._is_done

    @property
    def state(self) -> GameState:
        """Copy of the position.

        Raises:
            EpisodeDone: before the first reset.
        """
        if self._game is None:
            raise EpisodeDone("Azul: there is no game yet: call reset() first")
        return self._game.state()

    def reset(self, *, seed: int | None = None, draw: Draw | None = None) -> EnvStep:
        """Starts an episode, even if the last one is not over.

        Args:
            seed: seed of this and the following episodes; None continues the current sequence.
            draw: draws the tiles of this episode instead of the seed, for replays; see `Draw`.

        Raises:
            UsageError: the seed is not an integer, or negative.
            SchemaError: `draw` returns a color that is not in the bag.
        """
        rng = self._rng if seed is None else np.random.default_rng(checked_seed(seed))
        with self._undone_on_error():
            self._rng = rng
            start = self.config.starting_player
            if start == "random":
                start = int(rng.integers(self.config.num_players))
            self._game = FastGame(
                self.config.num_players, starting_player=start, rng=rng, draw=draw
            )
            self._is_done = False
            observations, mask, rewards = self._arrays()
            status = self._game.show(observations, mask)
            return self._finished(EnvStep(observations, rewards, False, status, mask, None, None))

    def step(self, action_id: int) -> EnvStep:
        """Makes a move for the current player. If it raises, nothing has changed.

        Raises:
            EpisodeDone: the episode is over, or none has begun.
            InvalidActionId: not an integer from 0 to 299.
            IllegalAction: the move is illegal.
            SchemaError: the `draw` given to `reset` returns a color that is not in the bag.
        """
        game = self._game
        if self._is_done or game is None:
            done = "the episode is over" if game else "no episode has begun"
            raise EpisodeDone(f"Azul: {done}: call reset() before step()")
        if type(action_id) is not int or not 0 <= action_id < ACTION_SPACE_SIZE:
            action_id = checked_id(action_id)
        if self._is_plain_features:  # nothing to undo; a context costs time
            return self._move(game, action_id)
        with self._undone_on_error():
            return self._move(game, action_id)

    def _move(self, game: FastGame, action_id: int) -> EnvStep:
        observations, mask, rewards = self._arrays()
        status = game.move(action_id, observations, mask, rewards)
        if status < OVER:
            if status == ILLEGAL:
                raise illegal(game.state(), ACTIONS[action_id])
            step = EnvStep(observations, rewards, False, status, mask, action_id, None)
        else:
            self._is_done = True
            step = EnvStep(observations, rewards, True, status - OVER, mask, action_id, None)
        return step if self._is_plain else self._finished(step)

    @contextmanager
    def _undone_on_error(self) -> Iterator[None]:
        """With a custom encoder, restores the episode and the random generator after an error."""
        if self._is_plain_features:
            yield
            return
        game, rng, is_done = self._game, self._rng, self._is_done
        position, draws = None if game is None else game.state(), rng.bit_generator.state
        try:
            yield
        except BaseException:
            self._game, self._rng, self._is_done = game, rng, is_done
            rng.bit_generator.state = draws
            if game is not None and position is not None:
                game.restore(position)
            raise

    def _arrays(self) -> tuple[Observations, Mask, Rewards]:
        return (
            _zeros(self._filled_shape, np.float32),
            _zeros(ACTION_SPACE_SIZE, np.bool_),
            _zeros(MAX_PLAYERS, np.float32),
        )

    def _finished(self, step: EnvStep) -> EnvStep:
        config, game = self.config, self._game
        if self._is_plain or game is None:
            return step
        if config.reward_scheme is RewardScheme.TerminalOnly:
            step = step._replace(rewards=terminal_rewards(game.scores if step.done else []))
        if config.max_rounds is not None and not step.done and game.round > config.max_rounds:
            self._is_done = True
            mask = np.zeros(ACTION_SPACE_SIZE, np.bool_)
            step = step._replace(done=True, truncated=True, legal_action_mask=mask)
        if not self._is_plain_features:
            state, observations = game.state(), np.zeros((MAX_PLAYERS, self.obs_size), np.float32)
            for player in range(state.num_players):
                observations[player] = encoded(self.features, self.obs_size, state, player)
            step = step._replace(observations=observations)
        return step._replace(state=game.state()) if config.include_full_state_in_step else step


def terminal_rewards(scores: list[int]) -> Rewards:
    """Final scores minus their mean; 0 without scores."""
    rewards = np.zeros(MAX_PLAYERS, np.float64)
    if scores:
        rewards[: len(scores)] = np.array(scores, np.float64) - np.mean(scores, dtype=np.float64)
    return rewards.astype(np.float32)
