"""TurnAECEnv: agents who act one after the other, as PettingZoo steps them."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from pettingzoo import AECEnv

from entity_env.core.validation import checked_count, is_integer
from entity_env.errors import ProtocolError, SchemaError, UsageError
from entity_env.interop.gymnasium.padded_actions import IllegalActions
from entity_env.interop.gymnasium.vector_base import gymnasium_seed

Observation: TypeAlias = dict[str, NDArray[Any]]
RENDER_FPS = 4


class Seen(NamedTuple):
    """What a reset or a step led to; nobody writes it afterwards.

    Attributes:
        turn: whom the game asks; None when it is over.
        observations: `(num_agents, num_numbers)` float32, what each agent saw last.
        mask: `(num_actions,)` bool, what is allowed to `turn`.
        rewards: `(num_agents,)`, of this step.
        terminated, truncated: `(num_agents,)` bool; once True, they stay so in the episode.
    """

    turn: int | None
    observations: NDArray[np.float32]
    mask: NDArray[np.bool_]
    rewards: NDArray[np.floating[Any]]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]


class TurnAECEnv(AECEnv[str, Observation, "int | None"]):  # type: ignore[misc]  # it has no types
    """Shows agents who take turns as a `pettingzoo.AECEnv`; see `entity_env.interop.pettingzoo`.

    Subclasses say what a reset and a move lead to, by `_begin` and `_move`.

    Args:
        name: of the game.
        num_agents: how many play.
        observation: what one agent sees, of one dimension.
        num_actions: how many there are.
        max_turns: turns of all agents together after which an episode is truncated; None = never.
        illegal_actions: what becomes of choices that are not allowed.
        render_modes: those that there are.
        render_mode: one of them, or None.
        seed: of all episodes; drawn if left out. `reset(seed=...)` begins anew.

    Raises:
        UsageError: a setting that makes no sense.
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
        """Begins an episode; None goes on to the next one."""

    @abstractmethod
    def _move(self, action: int) -> Seen:
        """Makes a move that is allowed."""

    def _words(self, action: int) -> str:
        """An action as an error calls it."""
        return f"action {action}"

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        """What an agent sees, the same object every time."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Space[Any]:
        """What an agent may do, the same object every time."""
        return self.action_spaces[agent]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Begins a new episode.

        Args:
            seed: begins anew from this seed; None goes on with the next episode, or draws a seed if
                there was none.
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
        """Makes the move of `agent_selection`; None for one whose episode is over.

        Raises:
            ProtocolError: before `reset`, or when all agents are gone.
            SchemaError: no action, or one that is not allowed; nothing has changed then.
        """
        if self._seen is None or not self.agents:
            when = "no episode has begun" if self._seen is None else "the episode is over"
            raise ProtocolError(f"{self}: {when}: call reset before step")
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            if action is not None:
                raise SchemaError(f"{self}: {agent} is out of the game: its action must be None")
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
        """What an agent saw last, and what it may do; the caller's own.

        Raises:
            ProtocolError: before `reset`.
        """
        seen = self._require_seen()
        player = self.possible_agents.index(agent)
        is_asked = player == seen.turn and agent in self.agents and not self._is_out(agent)
        mask = seen.mask if is_asked else np.zeros_like(seen.mask)
        return {
            "observation": seen.observations[player].copy(),
            "action_mask": mask.astype(np.int8),
        }

    def _require_seen(self) -> Seen:
        if self._seen is None:
            raise ProtocolError(f"{self}: no episode has begun: call reset first")
        return self._seen

    def _is_out(self, agent: str) -> bool:
        return self.terminations[agent] or self.truncations[agent]

    def _select(self, seen: Seen, *, is_cut: bool) -> None:
        """Notes who is out, and selects those first, then who is to move."""
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
        """The action that is meant."""
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
            f"{self}: {agent} may not choose {self._words(number)} now; "
            "observation['action_mask'] says what it may"
        )
