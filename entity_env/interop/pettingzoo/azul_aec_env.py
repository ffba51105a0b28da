"""AzulAECEnv: Azul as a `pettingzoo.AECEnv`, with action ids and a `FeatureExtractor`."""

from __future__ import annotations

import sys
from typing import Literal

import numpy as np
from gymnasium import spaces

from entity_env.games.azul import (
    ACTION_SPACE_SIZE,
    AzulEnv,
    Backend,
    EnvConfig,
    EnvStep,
    FeatureExtractor,
    RewardScheme,
    describe_move,
    draw_state,
    has_colours,
)
from entity_env.interop.gymnasium.padded import IllegalActions
from entity_env.interop.pettingzoo.aec_base import Seen, TurnAECEnv


class AzulAECEnv(TurnAECEnv):
    """Azul as a `pettingzoo.AECEnv`; see `entity_env.interop.pettingzoo`.

    Observations of all agents are always current. An action is an id from 0 to 299.

    Args:
        num_players: 2 to 4.
        reward_scheme, starting_player, max_rounds: as for `EnvConfig`.
        max_turns, illegal_actions, seed: as for `TurnAECEnv`.
        render_mode: "ansi" (`render` returns text), "human" (it writes to stdout), or None.
        features: encodes observations.
        backend: the engine; see `Backend`.

    Raises:
        UsageError: an invalid setting.
        MissingExtraError: backend "numba" without numba.
    """

    def __init__(
        self,
        num_players: int = 2,
        *,
        reward_scheme: RewardScheme
        | Literal["DenseScoreDelta", "TerminalOnly"] = RewardScheme.DenseScoreDelta,
        starting_player: int | Literal["random"] = "random",
        max_rounds: int | None = None,
        max_turns: int | None = None,
        illegal_actions: IllegalActions = "raise",
        render_mode: str | None = None,
        seed: int | None = None,
        features: FeatureExtractor | None = None,
        backend: Backend = "auto",
    ) -> None:
        config = EnvConfig(
            num_players=num_players,
            reward_scheme=reward_scheme,
            starting_player=starting_player,
            max_rounds=max_rounds,
        )
        self._env = AzulEnv(config, features=features, backend=backend)
        super().__init__(
            "azul",
            num_players,
            spaces.Box(-np.inf, np.inf, (self._env.features.obs_size,), np.float32),
            ACTION_SPACE_SIZE,
            max_turns=max_turns,
            illegal_actions=illegal_actions,
            render_modes=("ansi", "human"),
            render_mode=render_mode,
            seed=seed,
        )

    def render(self) -> str | None:
        """The state as text, returned or written; None without a render mode.

        Raises:
            ProtocolError: before `reset`.
        """
        if self.render_mode is None:
            return None
        self._require_seen()
        is_human = self.render_mode == "human"
        drawn = draw_state(
            self._env.state,
            colours=is_human and has_colours(sys.stdout),
            names=self.possible_agents,
        )
        if not is_human:
            return drawn
        sys.stdout.write(f"{drawn}\n\n")
        return None

    def close(self) -> None:
        """Does nothing; may be called twice."""

    def _begin(self, seed: int | None) -> Seen:
        return self._seen_in(self._env.reset(seed=seed))

    def _move(self, action: int) -> Seen:
        return self._seen_in(self._env.step(action))

    def _describe(self, action: int) -> str:
        return f"action {action}, {describe_move(action)},"

    def _seen_in(self, step: EnvStep) -> Seen:
        num_agents = self._env.config.num_players
        return Seen(
            turn=None if step.done else step.current_player,
            observations=step.observations[:num_agents],
            mask=step.legal_action_mask,
            rewards=step.rewards[:num_agents],
            terminated=np.full(num_agents, step.terminated),
            truncated=np.full(num_agents, step.truncated),
        )
