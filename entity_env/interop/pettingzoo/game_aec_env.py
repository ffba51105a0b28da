"""GameAECEnv: a game in which agents take turns as a `pettingzoo.AECEnv`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from entity_env.authoring.game import Game
from entity_env.core.episode import MAX_IDLE_EPISODES
from entity_env.core.spaces import ActionName, EntityName
from entity_env.core.vec_obs import VecObs
from entity_env.errors import ProtocolError, UsageError
from entity_env.interop.gymnasium.padded import (
    IllegalActions,
    Masks,
    PaddedActions,
    PaddedEntities,
)
from entity_env.interop.gymnasium.vector_env import start_of
from entity_env.interop.pettingzoo.aec_base import Seen, TurnAECEnv
from entity_env.vec.backend import render_obs
from entity_env.vec.vec_env import VecEnv


class GameAECEnv(TurnAECEnv):
    """Wraps a game as a `pettingzoo.AECEnv`; see `entity_env.interop.pettingzoo`.

    An observation is the dict described in `entity_env.interop.gymnasium`, flattened by
    `gymnasium.spaces.flatten`; `entities` is the space of the dict. An action is a label, or a
    place in the observation. The observation of an agent is that of its last turn, zeros before. A
    seed has the same episodes as in a `GameEnv`. `reset`, `step` and `close` must be called from
    one thread.

    Args:
        game: a game for several agents that asks one at a time.
        max_entities: as for `GameEnv`.
        max_turns, illegal_actions, seed: as for `TurnAECEnv`.
        render_mode: "rgb_array", or None.
        settings: keyword arguments of the game's `play`.

    Raises:
        SchemaError: the number of entities of a type varies and is not in `max_entities`.
        UsageError: a game that asks several agents at once, whose action is not one choice, or an
            invalid setting.
    """

    def __init__(
        self,
        game: Game,
        *,
        max_entities: Mapping[EntityName, int] | None = None,
        max_turns: int | None = None,
        illegal_actions: IllegalActions = "raise",
        render_mode: str | None = None,
        seed: int | None = None,
        **settings: object,
    ) -> None:
        self._game = game.with_settings(**settings)
        self._vec = vec = VecEnv(self._game, 1, autoreset="disabled")
        try:
            first = self._past_idle(vec.reset(seed=0))
            self._turn(first)
            self._entities = PaddedEntities(vec.obs_space(), first, max_entities or {})
            self._actions = PaddedActions(vec.action_space(), self._entities, first, {}, "raise")
            action_space = self._actions.space()
            if not isinstance(action_space, spaces.Discrete):
                raise UsageError(
                    f"{game.name}: its actions are a {action_space}: an AEC environment is for one "
                    "choice at a time"
                )
            self.entities: Final = self._entities.space()
            flat = spaces.flatten_space(self.entities)
            super().__init__(
                game.name,
                vec.num_agents,
                spaces.Box(-np.inf, np.inf, flat.shape, np.float32),
                int(action_space.n),
                max_turns=max_turns,
                illegal_actions=illegal_actions,
                render_modes=("rgb_array",),
                render_mode=render_mode,
                seed=seed,
            )
        except BaseException:
            vec.close()
            raise
        self._name: ActionName = next(iter(vec.action_space()))
        self._was_reset = False
        self._obs = first
        self._masks: Masks = {}
        self._shown = np.zeros((vec.num_agents, *(flat.shape or ())), np.float32)
        self._ended = np.zeros((2, vec.num_agents), np.bool_)

    def render(self) -> NDArray[np.uint8] | None:
        """An image of the acting agent's observation, `(height, width, 3)` uint8, or None.

        Raises:
            ProtocolError: before `reset`.
        """
        if self.render_mode is None:
            return None
        turn = self._require_seen().turn
        return render_obs(self._obs, self._vec.obs_space(), 0 if turn is None else turn)

    def close(self) -> None:
        """Ends the game; may be called twice."""
        self._vec.close()

    def _begin(self, seed: int | None) -> Seen:
        if seed is None and not self._was_reset:
            seed = int(np.random.SeedSequence().generate_state(1)[0])
        starts: dict[str, Any] = {} if seed is None else {"seed": 0, "starts": [start_of(seed)]}
        self._was_reset = True
        self._shown[:] = 0
        self._ended[:] = False
        return self._seen_in(self._past_idle(self._vec.reset(**starts)))

    def _move(self, action: int) -> Seen:
        given = np.full(self._vec.num_agents, action)
        return self._seen_in(self._vec.act(self._actions.answer(self._obs, self._masks, given)))

    def _seen_in(self, obs: VecObs) -> Seen:
        self._obs = obs
        turn = self._turn(obs)
        self._masks = self._actions.masks(obs)
        self._ended |= obs.terminated, obs.truncated
        tables = self._entities.observe(obs)
        for row in np.flatnonzero(obs.is_ready | obs.done):
            one = {key: table[row] for key, table in tables.items()}
            flat: Any = spaces.flatten(self.entities, one)
            self._shown[row] = flat
        mask = self._masks[self._name]
        return Seen(
            turn=turn,
            observations=self._shown.copy(),
            mask=mask[turn or 0, 0] & (turn is not None),
            rewards=obs.reward.copy(),
            terminated=self._ended[0].copy(),
            truncated=self._ended[1].copy(),
        )

    def _turn(self, obs: VecObs) -> int | None:
        """The agent to act; None at the end of the game."""
        ready = np.flatnonzero(obs.is_ready).tolist()
        if len(ready) > 1:
            raise UsageError(
                f"{self._game.name} asks agents {', '.join(map(str, ready))} at once: an AEC "
                "environment is for games with turns; step this one as a VecEnv"
            )
        return ready[0] if ready else None

    def _past_idle(self, obs: VecObs) -> VecObs:
        """Skips episodes that end before the first action."""
        for _ in range(MAX_IDLE_EPISODES):
            if obs.is_ready.any():
                return obs
            obs = self._vec.reset()
        raise ProtocolError(
            f"{self._game.name}: {MAX_IDLE_EPISODES} episodes in a row were over before the first "
            "action"
        )
