"""GameAECEnv: a game as a `pettingzoo.AECEnv`, one agent at a time."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from pettingzoo import AECEnv

from entity_env.authoring.game import Game
from entity_env.core.validation import checked_count, is_integer
from entity_env.errors import ProtocolError, SchemaError, UsageError
from entity_env.interop.gymnasium.padded import IllegalActions
from entity_env.interop.gymnasium.room import Room
from entity_env.interop.gymnasium.vector_env import gymnasium_seed, require_settings
from entity_env.interop.pettingzoo.parallel_env import PaddedEnv, PaddedGame

Observation: TypeAlias = dict[str, NDArray[Any]]
RENDER_FPS = 4


class GameAECEnv(PaddedEnv, AECEnv[str, Observation, "int | None"]):  # type: ignore[misc]  # it has no types
    """Wraps a game as a `pettingzoo.AECEnv`; see `entity_env.interop.pettingzoo`.

    An observation is the dict described in `entity_env.interop.gymnasium`, flattened by
    `gymnasium.spaces.flatten`; `entities` is the space of the dict. An action is the index of a
    label, or of an entity's row among the rows of all types. Between its turns, an agent keeps the
    observation of its last turn; before its first turn, the observation is all zeros. Call `reset`,
    `step` and `close` from one thread.

    Agents asked at the same time take turns, and the game proceeds after the last agent's action,
    as in PettingZoo's `parallel_to_aec`. No agent sees the others' choices.

    Args:
        max_entities: as for `GameEnv`.
        max_turns: total turns of all agents after which an episode is truncated; None = never.
        illegal_actions, render_mode: as for `GameEnv`.
        seed: seed of the first `reset`, if that call has none; drawn by default.
        settings: keyword arguments of the game's `play`.

    Raises:
        SchemaError: as for `GameEnv`.
        UsageError: a game whose action is not one choice, or an invalid setting.
    """

    def __init__(
        self,
        game: Game,
        *,
        max_entities: Room | None = None,
        max_turns: int | None = None,
        illegal_actions: IllegalActions = "raise",
        render_mode: str | None = None,
        seed: int | None = None,
        **settings: object,
    ) -> None:
        require_settings(illegal_actions, render_mode)
        super().__init__()
        self.metadata = {
            "name": game.name,
            "render_modes": ["rgb_array"],
            "render_fps": RENDER_FPS,
            "is_parallelizable": False,
        }
        self.render_mode = render_mode
        self._max_turns = None if max_turns is None else checked_count("max_turns", max_turns)
        self._illegal = illegal_actions
        first_seed = None if seed is None else gymnasium_seed(seed)
        self._num_turns = 0
        self._given: dict[int, int] = {}
        """Actions of simultaneous agents, until all are known."""
        padded = PaddedGame(game.with_settings(**settings), max_entities)
        action_space = padded.actions.space()
        if not isinstance(action_space, spaces.Discrete):
            padded.vec.close()
            raise UsageError(
                f"{game.name}: its actions are a {action_space}, but an AEC environment is for one "
                "choice at a time; take a GameParallelEnv"
            )
        self._add_agents(padded, first_seed)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Starts a new episode.

        Args:
            seed: seed of the episode; None continues with the next episode. In the first reset,
                None = the constructor's seed, or a drawn one.
            options: ignored.
        """
        self._begin(seed)
        self._num_turns = 0
        self._given = {}
        self._skip_agent_selection = None
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.infos: dict[str, dict[str, Any]] = {
            agent: {"episode_seed": self._padded.episode_seed} for agent in self.agents
        }
        self._select()

    def step(self, action: int | None) -> None:
        """Performs the action of `agent_selection`; pass None if its episode is over.

        Raises:
            ProtocolError: before `reset`, or after the last agent's episode.
            SchemaError: not an action, or an illegal one; the state does not change.
        """
        self._require_episode()
        if not self.agents:
            raise ProtocolError(f"{self}: the episode is over: call reset before step")
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            if action is not None:
                raise SchemaError(
                    f"{self}: the episode of {agent} is over: its action must be None"
                )
            self._was_dead_step(action)
            return
        self._move(self._checked(agent, action))
        self._num_turns += 1
        self._cumulative_rewards[agent] = 0.0
        rewards = 0 * self._padded.obs.reward if self._given else self._padded.obs.reward
        for name, reward in zip(self.possible_agents, rewards.tolist(), strict=True):
            if name in self.rewards:
                self.rewards[name] = reward
        self._accumulate_rewards()
        self._select()

    def observe(self, agent: str) -> Observation:
        """Last observation and action mask of an agent, owned by the caller.

        Raises:
            ProtocolError: before `reset`.
        """
        self._require_episode()
        player = self.possible_agents.index(agent)
        is_over = self.terminations.get(agent, True) or self.truncations.get(agent, True)
        can_act = player == self._turn() and not is_over
        mask = self._mask(player) & can_act
        return {
            "observation": self._padded.shown[player].copy(),
            "action_mask": mask.astype(np.int8),
        }

    def render(self) -> NDArray[np.uint8] | None:
        """Image of the acting agent's observation, `(height, width, 3)` uint8.

        After the last action, shows the first agent. None without a render mode.

        Raises:
            ProtocolError: before `reset`.
        """
        if self.render_mode is None:
            return None
        self._require_episode()
        return self._padded.render(self._turn() or 0)

    def _require_episode(self) -> None:
        if not hasattr(self, "agent_selection"):
            raise ProtocolError(f"{self}: no episode has begun: call reset first")

    def _move(self, action: int) -> None:
        """Stores a legal action; performs all requested actions once they are known."""
        padded = self._padded
        self._given[self._turn() or 0] = action
        if self._turn() is None:
            padded.act([self._given.get(each, 0) for each in range(padded.vec.num_agents)])
            self._given = {}

    def _turn(self) -> int | None:
        """First asked agent that has not acted; None if all have, or after the end."""
        asked: list[int] = np.flatnonzero(self._padded.obs.is_ready).tolist()
        return next((agent_id for agent_id in asked if agent_id not in self._given), None)

    def _mask(self, player: int) -> NDArray[np.bool_]:
        (masks,) = self._padded.masks.values()
        mask: NDArray[np.bool_] = masks[player, 0]
        return mask

    def _select(self) -> None:
        """Updates the flags; selects agents whose episode is over first, then the agent to act."""
        padded, is_cut = self._padded, self._num_turns == self._max_turns
        ends = zip(
            self.possible_agents,
            padded.terminated.tolist(),
            padded.truncated.tolist(),
            strict=True,
        )
        flags = {name: (over, cut) for name, over, cut in ends if name in self.agents}
        self.terminations = {name: over for name, (over, _) in flags.items()}
        self.truncations = {
            name: cut or (is_cut and not over) for name, (over, cut) in flags.items()
        }
        turn = self._turn()
        if turn is not None:
            self.agent_selection = self.possible_agents[turn]
        elif not hasattr(self, "agent_selection"):
            self.agent_selection = self.possible_agents[0]
        self._deads_step_first()

    def _checked(self, agent: str, action: object) -> int:
        """The action as an `int`; an illegal one raises `SchemaError` or is replaced."""
        mask = self._mask(self.possible_agents.index(agent))
        if isinstance(action, np.ndarray) and action.shape == ():
            action = action[()]
        number = int(action) if is_integer(action) else -1
        if not 0 <= number < len(mask):
            raise SchemaError(
                f"{self}: {agent} needs an integer from 0 to {len(mask) - 1} as its action: got "
                f"{action!r}"
            )
        if mask[number]:
            return number
        if self._illegal == "next":
            return int(np.roll(mask, -number).argmax() + number) % len(mask)
        raise SchemaError(
            f"{self}: {agent} may not choose action {number} now; see observation['action_mask']"
        )
