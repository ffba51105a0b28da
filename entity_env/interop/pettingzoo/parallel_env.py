"""GameParallelEnv: a game as a `pettingzoo.ParallelEnv`; code shared with `GameAECEnv`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from pettingzoo import ParallelEnv

from entity_env.authoring.game import Game
from entity_env.core.vec_obs import VecObs
from entity_env.errors import ProtocolError, SchemaError
from entity_env.interop.gymnasium.env import OneGame
from entity_env.interop.gymnasium.padded import IllegalActions
from entity_env.interop.gymnasium.room import Room
from entity_env.interop.gymnasium.vector_env import (
    RENDER_FPS,
    Uncopyable,
    gymnasium_seed,
    require_settings,
)
from entity_env.vec.executor import render_obs

ByAgent: TypeAlias = dict[str, Any]


class PaddedGame(OneGame):
    """One game with padded entities; observations are flat arrays.

    Attributes:
        flat_space: space of a row of `shown`.
        shown: `(num_agents, num_features)` float32, latest observation of each agent, else zeros.
        terminated, truncated: `(num_agents,)` bool; once True, True for the rest of the episode.
    """

    def __init__(
        self,
        game: Game,
        max_entities: Room | None,
        max_actors: Room | None = None,
        illegal_actions: IllegalActions = "raise",
    ) -> None:
        super().__init__(game, max_entities, max_actors, illegal_actions)
        width = spaces.flatdim(self.space)
        self.flat_space: Final = spaces.Box(-np.inf, np.inf, (width,), np.float32)
        self.shown = np.zeros((self.vec.num_agents, width), np.float32)
        self.terminated, self.truncated = np.zeros((2, self.vec.num_agents), np.bool_)

    def masked_space(self, action_space: spaces.Space[Any]) -> spaces.Space[Any]:
        """Observation space of an agent: a flat `Box`; for a `Discrete` action, a `Dict` of this
        box and the action mask."""
        shown = spaces.Box(self.flat_space.low, self.flat_space.high, dtype=np.float32)
        if not isinstance(action_space, spaces.Discrete):
            return shown
        mask = spaces.Box(0, 1, (int(action_space.n),), np.int8)
        return spaces.Dict({"observation": shown, "action_mask": mask})

    def begin(self, seed: int | None) -> None:
        """Starts the first episode of a seed. None = the next episode, or at first a drawn seed."""
        if seed is None and not self.was_reset:
            seed = int(np.random.SeedSequence().generate_state(1)[0])
        self.shown[:] = 0
        self.terminated[:] = self.truncated[:] = False
        super().begin(seed)

    def render(self, agent_id: int) -> NDArray[np.uint8]:
        return render_obs(self.obs, self.vec.obs_space(), agent_id)

    def _read(self, obs: VecObs) -> None:
        super()._read(obs)
        self.terminated |= obs.terminated
        self.truncated |= obs.truncated
        if self.vec.is_over.all():  # agents that took no part are never done
            self.terminated |= ~self.truncated
        tables = self.entities.observe(obs)
        for row in np.flatnonzero(obs.is_ready | obs.done):
            flat: Any = spaces.flatten(self.space, {key: t[row] for key, t in tables.items()})
            self.shown[row] = flat


class PaddedEnv(Uncopyable):
    """PettingZoo environment that plays a padded game: agents, spaces, closing."""

    has_blank_masks: ClassVar[bool] = True
    """Masks of zeros mean that no action is needed, for the importers of this package."""

    def _add_agents(self, padded: PaddedGame, seed: int | None) -> None:
        """Sets up agents and spaces for a game, which `close` ends.

        `seed` is used if the first reset has none.
        """
        self._padded = padded
        self._seed = seed
        self.entities = padded.entities.space()
        self.possible_agents = [f"player_{i}" for i in range(padded.vec.num_agents)]
        self.agents: list[str] = []
        self.action_spaces = {agent: padded.actions.space() for agent in self.possible_agents}
        self.observation_spaces = {
            agent: padded.masked_space(space) for agent, space in self.action_spaces.items()
        }

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        """Always the same object."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Space[Any]:
        """Always the same object."""
        return self.action_spaces[agent]

    def close(self) -> None:
        """Ends the game; may be called twice."""
        self._padded.vec.close()

    def _begin(self, seed: int | None) -> None:
        self._padded.begin(self._seed if seed is None else gymnasium_seed(seed))
        self._seed = None
        self.agents = list(self.possible_agents)


class GameParallelEnv(PaddedEnv, ParallelEnv[str, Any, Any]):  # type: ignore[misc]  # it has no types
    """Wraps a game as a `pettingzoo.ParallelEnv`; see `entity_env.interop.pettingzoo`.

    The game may ask all agents at once, some, or one; actions of the other agents are ignored and
    may be omitted. Actions are as in `GameEnv`: a `Discrete`, a `MultiDiscrete` for several actors,
    or a `Dict` of several actions. For a `Discrete`, observations are as in `GameAECEnv`; otherwise
    they are flat arrays without a mask. `infos[agent]["action_mask"]` is as in `GameEnv`, 0 for
    agents that do not act. Call `reset`, `step` and `close` from one thread.

    Args:
        max_entities, max_actors, illegal_actions, render_mode: as for `GameEnv`.
        seed: used if the first `reset` has no seed; drawn by default.
        settings: keyword arguments of the game's `play`.

    Raises:
        SchemaError: as for `GameEnv`.
        UsageError: an invalid setting.
    """

    def __init__(
        self,
        game: Game,
        *,
        max_entities: Room | None = None,
        max_actors: Room | None = None,
        illegal_actions: IllegalActions = "raise",
        render_mode: str | None = None,
        seed: int | None = None,
        **settings: object,
    ) -> None:
        require_settings(illegal_actions, render_mode)
        self.metadata = {
            "name": game.name,
            "render_modes": ["rgb_array"],
            "render_fps": RENDER_FPS,
            "is_parallelizable": True,
        }
        self.render_mode = render_mode
        first_seed = None if seed is None else gymnasium_seed(seed)
        padded = PaddedGame(
            game.with_settings(**settings), max_entities, max_actors, illegal_actions
        )
        self._add_agents(padded, first_seed)

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[ByAgent, ByAgent]:
        """Starts a new episode; returns observations and infos by agent, owned by the caller.

        Args:
            seed: seed of the episode; None continues with the next episode. In the first reset,
                None = the constructor's seed, or a drawn one.
            options: ignored.
        """
        self._begin(seed)
        infos = self._infos(self.agents)
        return self._observations(infos), infos

    def step(
        self, actions: Mapping[str, Any]
    ) -> tuple[ByAgent, ByAgent, ByAgent, ByAgent, ByAgent]:
        """Performs the actions of the agents that the game asks.

        Returns:
            Observations, rewards, terminations, truncations and infos of the agents that were in
            `agents` before this step, owned by the caller.

        Raises:
            ProtocolError: before `reset`, or after the episodes of all agents have ended.
            SchemaError: an action is missing or does not fit; the state does not change.
        """
        if not self.agents:
            raise ProtocolError(f"{self}: no episode is being played: call reset before step")
        padded = self._padded
        padded.act(self._given(actions))
        names = self.agents
        ids = {name: self.possible_agents.index(name) for name in names}
        over = {name: bool(padded.terminated[i]) for name, i in ids.items()}
        cut = {name: bool(padded.truncated[i]) for name, i in ids.items()}
        rewards = {name: float(padded.obs.reward[i]) for name, i in ids.items()}
        self.agents = [name for name in names if not (over[name] or cut[name])]
        infos = self._infos(names)
        return self._observations(infos), rewards, over, cut, infos

    def render(self) -> NDArray[np.uint8] | None:
        """Image of what the first asked agent observes, `(height, width, 3)` uint8.

        Shows the first agent if none is asked; None without a render mode.
        """
        if self.render_mode is None:
            return None
        return self._padded.render(int(self._padded.obs.is_ready.argmax()))

    def _observations(self, infos: Mapping[str, ByAgent]) -> ByAgent:
        shown: ByAgent = {}
        for name, flat in zip(self.possible_agents, self._padded.shown.copy(), strict=True):
            if name in infos:
                shown[name] = flat
                if isinstance(self.action_spaces[name], spaces.Discrete):
                    mask = infos[name]["action_mask"].copy()
                    shown[name] = {"observation": flat, "action_mask": mask}
        return shown

    def _infos(self, names: Sequence[str]) -> dict[str, ByAgent]:
        masks = self._padded.actions.info(self._padded.masks).get("action_mask")
        infos: dict[str, ByAgent] = {}
        for i, name in enumerate(self.possible_agents):
            if name in names:
                infos[name] = {"episode_seed": self._padded.episode_seed}
                if isinstance(masks, dict):
                    infos[name]["action_mask"] = {key: mask[i] for key, mask in masks.items()}
                elif masks is not None:
                    infos[name]["action_mask"] = masks[i]
        return infos

    def _given(self, actions: Mapping[str, Any]) -> object:
        """Actions of all agents; zeros for agents that are not asked."""
        rows: list[Any] = []
        for name, is_asked in zip(self.possible_agents, self._padded.obs.is_ready, strict=True):
            space = self.action_spaces[name]
            if is_asked and name not in actions:
                raise SchemaError(f"{self}: an action of {name} is missing: got {list(actions)}")
            row = actions[name] if is_asked else _nothing(space)
            if isinstance(space, spaces.Dict) and set(row) != set(space.spaces):
                raise SchemaError(
                    f"{self}: {name} needs a dict of the actions {', '.join(space.spaces)}: got "
                    f"{row!r:.80}"
                )
            rows.append(row)
        first = self.action_spaces[self.possible_agents[0]]
        if isinstance(first, spaces.Dict):
            return {key: [row[key] for row in rows] for key in first.spaces}
        return rows


def _nothing(space: spaces.Space[Any]) -> Any:  # noqa: ANN401 - of the space
    if isinstance(space, spaces.Dict):
        return {key: _nothing(part) for key, part in space.spaces.items()}
    return np.zeros(space.shape or (), space.dtype)
