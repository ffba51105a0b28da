"""TurnAECEnv: base class of our `pettingzoo.AECEnv`s, for games in which agents take turns."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from pettingzoo import AECEnv

from entity_env.core.validation import checked_count, is_integer
from entity_env.errors import ProtocolError, SchemaError, UsageError
from entity_env.interop.gymnasium.padded import IllegalActions
from entity_env.interop.gymnasium.vector_base import gymnasium_seed

Observation: TypeAlias = dict[str, NDArray[Any]]
RENDER_FPS = 4


class Seen(NamedTuple):
    """Result of a reset or a step; not modified afterwards.

    Attributes:
        turn: the agent to act; None at the end of the game.
        observations: `(num_agents, num_features)` float32, the last one of each agent.
        mask: `(num_actions,)` bool, legal actions of `turn`.
        rewards: `(num_agents,)`, of this step.
        terminated, truncated: `(num_agents,)` bool; once True, True for the rest of the episode.
    """

    turn: int | None
    observations: NDArray[np.float32]
    mask: NDArray[np.bool_]
    rewards: NDArray[np.floating[Any]]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]


class TurnAECEnv(AECEnv[str, Observation, "int | None"]):  # type: ignore[misc]  # it has no types
    """Implements `pettingzoo.AECEnv` on the methods `_begin` and `_move` of subclasses.

    Args:
        name: name of the game.
        num_agents: number of agents.
        observation: observation space of one agent, with one dimension.
        num_actions: number of actions.
        max_turns: turns of all agents together after which an episode is truncated; None = never.
        illegal_actions: "raise" a `SchemaError`, or take the "next" legal action.
        render_modes: the supported modes.
        render_mode: one of them, or None.
        seed: seed of the first `reset` without one; drawn by default.

    Raises:
        UsageError: an invalid setting.
    """

    def __init__(
        self,
        name: str,
        num_agents: int,
        observation: spaces.Box,
        num_actions: int,
        *,
        max_turns: int | None = None,
        illegal_actions: IllegalActions = "raise",
        render_modes: tuple[str, ...] = (),
        render_mode: str | None = None,
        seed: int | None = None,
    ) -> None:
        if illegal_actions not in ("raise", "next"):
            raise UsageError(f'illegal_actions must be "raise" or "next": got {illegal_actions!r}')
        if render_mode is not None and render_mode not in render_modes:
            modes = " or ".join(map(repr, render_modes))
            raise UsageError(f"render_mode must be {modes}, or None: got {render_mode!r}")
        super().__init__()
        self.metadata = {
            "name": name,
            "render_modes": list(render_modes),
            "render_fps": RENDER_FPS,
            "is_parallelizable": False,
        }
        self.render_mode = render_mode
        self.possible_agents = [f"player_{i}" for i in range(num_agents)]
        self.agents: list[str] = []
        self.observation_spaces = {
            agent: spaces.Dict(
                {
                    "observation": spaces.Box(observation.low, observation.high, dtype=np.float32),
                    "action_mask": spaces.Box(0, 1, (num_actions,), np.int8),
                }
            )
            for agent in self.possible_agents
        }
        self.action_spaces = {agent: spaces.Discrete(num_actions) for agent in self.possible_agents}
        self._max_turns = None if max_turns is None else checked_count("max_turns", max_turns)
        self._illegal = illegal_actions
        self._seed = None if seed is None else gymnasium_seed(seed)
        self._seen: Seen | None = None
        self._num_turns = 0

    @abstractmethod
    def _begin(self, seed: int | None) -> Seen:
        """Begins an episode; without a seed, the next one of the run."""

    @abstractmethod
    def _move(self, action: int) -> Seen:
        """Performs a legal action."""

    def _describe(self, action: int) -> str:
        """Text for an action in errors."""
        return f"action {action}"

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        """The observation space of an agent, always the same object."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Space[Any]:
        """The action space of an agent, always the same object."""
        return self.action_spaces[agent]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Begins a new episode.

        Args:
            seed: seed of the episode; None continues with the next one, or draws a seed at first.
            options: ignored.
        """
        seed = self._seed if seed is None else gymnasium_seed(seed)
        self._seed = None
        self._num_turns = 0
        self._skip_agent_selection = None
        self._seen = seen = self._begin(seed)
        self.agents = list(self.possible_agents)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.infos: dict[str, dict[str, Any]] = {agent: {} for agent in self.agents}
        self._select(seen, is_cut=False)

    def step(self, action: int | None) -> None:
        """Performs the action of `agent_selection`; None if its episode is over.

        Raises:
            ProtocolError: before `reset`, or after the last agent's episode.
            SchemaError: not an action, or an illegal one; the state does not change.
        """
        if self._seen is None or not self.agents:
            when = "no episode has begun" if self._seen is None else "the episode is over"
            raise ProtocolError(f"{self}: {when}: call reset before step")
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            if action is not None:
                raise SchemaError(
                    f"{self}: the episode of {agent} is over: its action must be None"
                )
            self._was_dead_step(action)
            return
        seen = self._move(self._checked(agent, action, self._seen.mask))
        self._seen = seen
        self._num_turns += 1
        self._cumulative_rewards[agent] = 0.0
        for name, reward in zip(self.possible_agents, seen.rewards.tolist(), strict=True):
            if name in self.rewards:
                self.rewards[name] = float(reward)
        self._accumulate_rewards()
        self._select(seen, is_cut=self._num_turns == self._max_turns)

    def observe(self, agent: str) -> Observation:
        """The last observation and the action mask of an agent, owned by the caller.

        Raises:
            ProtocolError: before `reset`.
        """
        seen = self._require_seen()
        player = self.possible_agents.index(agent)
        is_over = self.terminations.get(agent, True) or self.truncations.get(agent, True)
        mask = seen.mask if player == seen.turn and not is_over else np.zeros_like(seen.mask)
        return {
            "observation": seen.observations[player].copy(),
            "action_mask": mask.astype(np.int8),
        }

    def _require_seen(self) -> Seen:
        if self._seen is None:
            raise ProtocolError(f"{self}: no episode has begun: call reset first")
        return self._seen

    def _select(self, seen: Seen, *, is_cut: bool) -> None:
        """Updates the flags; selects agents whose episode is over first, then the one to act."""
        ends = zip(self.possible_agents, seen.terminated, seen.truncated, strict=True)
        flags = {name: (bool(over), bool(cut)) for name, over, cut in ends if name in self.agents}
        self.terminations = {name: over for name, (over, _) in flags.items()}
        self.truncations = {
            name: cut or (is_cut and not over) for name, (over, cut) in flags.items()
        }
        if seen.turn is not None:
            self.agent_selection = self.possible_agents[seen.turn]
        elif not hasattr(self, "agent_selection"):
            self.agent_selection = self.possible_agents[0]
        self._deads_step_first()

    def _checked(self, agent: str, action: object, mask: NDArray[np.bool_]) -> int:
        """The action as an `int`; an illegal one raises `SchemaError` or is replaced."""
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
            f"{self}: {agent} may not choose {self._describe(number)} now; "
            "see observation['action_mask']"
        )
