"""GameParallelEnv: a game as a `pettingzoo.ParallelEnv`, and the padded game of both kinds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from pettingzoo import ParallelEnv

from entity_env.authoring.game import Game
from entity_env.core.episode import MAX_IDLE_EPISODES
from entity_env.core.vec_obs import VecObs
from entity_env.errors import ProtocolError, SchemaError
from entity_env.interop.gymnasium.padded import IllegalActions, Masks
from entity_env.interop.gymnasium.room import Room, padded
from entity_env.interop.gymnasium.vector_env import (
    RENDER_FPS,
    Uncopyable,
    gymnasium_seed,
    require_settings,
    start_of,
)
from entity_env.vec.executor import render_obs
from entity_env.vec.vec_env import VecEnv

ByAgent: TypeAlias = dict[str, Any]


class PaddedGame:
    """One game with padded entities, as flat arrays; `vec` must be closed.

    Attributes:
        obs: the last batch.
        masks: its masks.
        episode_seed: `Episode.seed` of the current episode.
        flat_space: of a row of `shown`.
        shown: `(num_agents, num_features)` float32, the last observation of each agent.
        terminated, truncated: `(num_agents,)` bool; once True, True for the rest of the episode.
    """

    def __init__(
        self,
        game: Game,
        max_entities: Room | None,
        max_actors: Room | None = None,
        illegal_actions: IllegalActions = "raise",
    ) -> None:
        self.name: Final = game.name
        vec = VecEnv(game, 1, autoreset="disabled")
        self.vec: Final = vec
        self._was_reset = False
        try:
            self.entities, self.actions, self.obs = padded(
                vec,
                lambda: self._past_idle(vec.reset(seed=0)),
                max_entities,
                max_actors,
                illegal_actions,
            )
            self._space = self.entities.space()
        except BaseException:
            self.vec.close()
            raise
        width = spaces.flatdim(self._space)
        self.flat_space: Final = spaces.Box(-np.inf, np.inf, (width,), np.float32)
        self.masks: Masks = {}
        self.shown = np.zeros((self.vec.num_agents, width), np.float32)
        self.terminated, self.truncated = np.zeros((2, self.vec.num_agents), np.bool_)
        self.episode_seed = 0

    def masked_space(self, action_space: spaces.Space[Any]) -> spaces.Space[Any]:
        """Of an agent's observation: flat, in a dict with the mask of actions that are a choice."""
        shown = spaces.Box(self.flat_space.low, self.flat_space.high, dtype=np.float32)
        if not isinstance(action_space, spaces.Discrete):
            return shown
        mask = spaces.Box(0, 1, (int(action_space.n),), np.int8)
        return spaces.Dict({"observation": shown, "action_mask": mask})

    def begin(self, seed: int | None) -> None:
        """Begins the first episode of a seed; None continues, or draws one at first."""
        if seed is None and not self._was_reset:
            seed = int(np.random.SeedSequence().generate_state(1)[0])
        starts: dict[str, Any] = {} if seed is None else {"seed": 0, "starts": [start_of(seed)]}
        self._was_reset = True
        self.shown[:] = 0
        self.terminated[:] = self.truncated[:] = False
        self._read(self._past_idle(self.vec.reset(**starts)))
        seeds = self.vec.episode_seeds()
        self.episode_seed = 0 if seeds is None else int(seeds[0])

    def act(self, given: object) -> None:
        """Performs actions, given as for `PaddedActions`; the state does not change if one is
        wrong."""
        self._read(self.vec.act(self.actions.answer(self.obs, self.masks, given)))

    def render(self, agent_id: int) -> NDArray[np.uint8]:
        """An image of an agent's observation."""
        return render_obs(self.obs, self.vec.obs_space(), agent_id)

    def _read(self, obs: VecObs) -> None:
        self.obs = obs
        self.masks = self.actions.masks(obs)
        self.terminated |= obs.terminated
        self.truncated |= obs.truncated
        tables = self.entities.observe(obs)
        for row in np.flatnonzero(obs.is_ready | obs.done):
            flat: Any = spaces.flatten(self._space, {key: t[row] for key, t in tables.items()})
            self.shown[row] = flat

    def _past_idle(self, obs: VecObs) -> VecObs:
        """Skips episodes that end before the first action."""
        for _ in range(MAX_IDLE_EPISODES):
            if obs.is_ready.any():
                return obs
            obs = self.vec.reset()
        raise ProtocolError(
            f"{self.name}: {MAX_IDLE_EPISODES} episodes in a row were over before the first action"
        )


class PaddedEnv(Uncopyable):
    """Environment of PettingZoo that plays a padded game: its agents, their spaces, its end."""

    def _add_agents(self, padded: PaddedGame) -> None:
        """Makes agents and spaces for a game, which `close` ends."""
        self._padded = padded
        self.entities = padded.entities.space()
        self.possible_agents = [f"player_{i}" for i in range(padded.vec.num_agents)]
        self.agents: list[str] = []
        self.action_spaces = {agent: padded.actions.space() for agent in self.possible_agents}
        self.observation_spaces = {
            agent: padded.masked_space(space) for agent, space in self.action_spaces.items()
        }

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        """The observation space of an agent, always the same object."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Space[Any]:
        """The action space of an agent, always the same object."""
        return self.action_spaces[agent]

    def close(self) -> None:
        """Ends the game; may be called twice."""
        self._padded.vec.close()


class GameParallelEnv(PaddedEnv, ParallelEnv[str, Any, Any]):  # type: ignore[misc]  # it has no types
    """Wraps a game as a `pettingzoo.ParallelEnv`; see `entity_env.interop.pettingzoo`.

    The game may ask all agents at once, some or one; the actions of agents that it does not ask are
    ignored, and may be left out. Actions are those of a `GameEnv`: a `Discrete`, a `MultiDiscrete`
    for several actors, or a `Dict` of several actions. If they are a `Discrete`, observations are
    those of a `GameAECEnv`, else flat arrays without a mask. `infos[agent]["action_mask"]` is that
    of a `GameEnv`, 0 for agents not to act. A seed has the same episodes as in a `GameEnv`, and
    `infos[agent]["episode_seed"]` is that of the episode. `reset`, `step` and `close` must be
    called from one thread.

    Args:
        game: a game for any number of agents.
        max_entities, max_actors, illegal_actions: as for `GameEnv`.
        render_mode: "rgb_array", or None.
        seed: seed of the first `reset` without one; drawn by default.
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
        self._seed = None if seed is None else gymnasium_seed(seed)
        padded = PaddedGame(
            game.with_settings(**settings), max_entities, max_actors, illegal_actions
        )
        self._add_agents(padded)

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[ByAgent, ByAgent]:
        """Begins a new episode; returns observations and infos by agent, owned by the caller.

        Args:
            seed: seed of the episode; None continues with the next one, or draws a seed at first.
            options: ignored.
        """
        self._padded.begin(self._seed if seed is None else gymnasium_seed(seed))
        self._seed = None
        self.agents = list(self.possible_agents)
        return self._observations(self.agents), self._infos(self.agents)

    def step(
        self, actions: Mapping[str, Any]
    ) -> tuple[ByAgent, ByAgent, ByAgent, ByAgent, ByAgent]:
        """Performs the actions of the agents that the game asks.

        Returns:
            Observations, rewards, terminations, truncations and infos of the agents that were
            alive, owned by the caller.

        Raises:
            ProtocolError: before `reset`, or after the last agent's episode.
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
        return self._observations(names), rewards, over, cut, self._infos(names)

    def render(self) -> NDArray[np.uint8] | None:
        """An image of the first asked agent's observation, `(height, width, 3)` uint8, or None."""
        if self.render_mode is None:
            return None
        return self._padded.render(int(self._padded.obs.is_ready.argmax()))

    def _observations(self, names: Sequence[str]) -> ByAgent:
        infos = self._infos(names)
        return {
            name: self._observation(self._padded.shown[i].copy(), infos[name])
            for i, name in enumerate(self.possible_agents)
            if name in infos
        }

    def _observation(self, flat: NDArray[np.float32], info: ByAgent) -> Any:  # noqa: ANN401
        if not isinstance(self.action_spaces[self.possible_agents[0]], spaces.Discrete):
            return flat
        return {"observation": flat, "action_mask": info["action_mask"]}

    def _infos(self, names: Sequence[str]) -> dict[str, ByAgent]:
        masks = self._padded.actions.info(self._padded.masks).get("action_mask")
        infos: dict[str, ByAgent] = {
            name: {"episode_seed": self._padded.episode_seed} for name in names
        }
        if masks is None:
            return infos
        for i, name in enumerate(self.possible_agents):
            if name in infos:
                infos[name]["action_mask"] = (
                    {key: mask[i] for key, mask in masks.items()}
                    if isinstance(masks, dict)
                    else masks[i]
                )
        return infos

    def _given(self, actions: Mapping[str, Any]) -> object:
        """A batch of actions, with any for the agents that the game does not ask."""
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
