"""Our `pettingzoo.AECEnv`s, for games in which agents take turns, and their base class."""

from __future__ import annotations

import sys
from abc import abstractmethod
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from pettingzoo import AECEnv

from entity_env.authoring.game import Game
from entity_env.core.seeding import EpisodeSeeds, SeedsFrom
from entity_env.core.validation import checked_count, is_integer
from entity_env.errors import ProtocolError, SchemaError, UsageError
from entity_env.games.azul import (
    ACTION_SPACE_SIZE,
    AzulEnv,
    EnvConfig,
    EnvStep,
    PositionEncoder,
    RewardScheme,
    describe_move,
    draw_state,
    has_colours,
)
from entity_env.interop.gymnasium.padded import IllegalActions
from entity_env.interop.gymnasium.room import Room
from entity_env.interop.gymnasium.vector_env import Uncopyable, gymnasium_seed, require_settings
from entity_env.interop.pettingzoo.parallel_env import PaddedGame

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
        episode_seed: of the episode, for `infos`; None = without.
    """

    turn: int | None
    observations: NDArray[np.float32]
    mask: NDArray[np.bool_]
    rewards: NDArray[np.floating[Any]]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    episode_seed: int | None = None


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
        require_settings(illegal_actions, render_mode, render_modes)
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
        info = {} if seen.episode_seed is None else {"episode_seed": seen.episode_seed}
        self.infos: dict[str, dict[str, Any]] = {agent: {**info} for agent in self.agents}
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


class GameAECEnv(Uncopyable, TurnAECEnv):
    """Wraps a game as a `pettingzoo.AECEnv`; see `entity_env.interop.pettingzoo`.

    An observation is the dict described in `entity_env.interop.gymnasium`, flattened by
    `gymnasium.spaces.flatten`; `entities` is the space of the dict. An action is a label, or a
    place in the observation. The observation of an agent is that of its last turn, zeros before. A
    seed has the same episodes as in a `GameEnv`, and `infos[agent]["episode_seed"]` is that of the
    episode. `reset`, `step` and `close` must be called from one thread.

    Agents that the game asks at once take their turns one after another, and the game proceeds with
    the last one's action, as in PettingZoo's `parallel_to_aec`: none sees what the others chose.

    Args:
        game: a game for any number of agents.
        max_entities: as for `GameEnv`.
        max_turns, illegal_actions, seed: as for `TurnAECEnv`.
        render_mode: "rgb_array", or None.
        settings: keyword arguments of the game's `play`.

    Raises:
        SchemaError: the number of entities of a type varies and is not in `max_entities`.
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
        self._padded = padded = PaddedGame(game.with_settings(**settings), max_entities)
        self._given: dict[int, int] = {}
        """Actions of the agents that are asked at once, until those of all are known."""
        try:
            action_space = padded.actions.space()
            if not isinstance(action_space, spaces.Discrete):
                raise UsageError(
                    f"{game.name}: its actions are a {action_space}: an AEC environment is for one "
                    "choice at a time; take a GameParallelEnv"
                )
            self.entities: Final = padded.entities.space()
            super().__init__(
                game.name,
                padded.vec.num_agents,
                padded.flat_space,
                int(action_space.n),
                max_turns=max_turns,
                illegal_actions=illegal_actions,
                render_modes=("rgb_array",),
                render_mode=render_mode,
                seed=seed,
            )
        except BaseException:
            padded.vec.close()
            raise

    def render(self) -> NDArray[np.uint8] | None:
        """An image of the acting agent's observation, `(height, width, 3)` uint8, or None.

        Raises:
            ProtocolError: before `reset`.
        """
        if self.render_mode is None:
            return None
        return self._padded.render(self._require_seen().turn or 0)

    def close(self) -> None:
        """Ends the game; may be called twice."""
        self._padded.vec.close()

    def _begin(self, seed: int | None) -> Seen:
        self._given = {}
        self._padded.begin(seed)
        return self._seen_now(self._padded.obs.reward)

    def _move(self, action: int) -> Seen:
        padded = self._padded
        self._given[self._turn() or 0] = action
        if self._turn() is not None:
            return self._seen_now(np.zeros_like(padded.obs.reward))
        given = [self._given.get(agent_id, 0) for agent_id in range(padded.vec.num_agents)]
        self._given = {}
        padded.act(given)
        return self._seen_now(padded.obs.reward)

    def _seen_now(self, rewards: NDArray[np.float32]) -> Seen:
        padded, turn = self._padded, self._turn()
        (mask,) = padded.masks.values()
        return Seen(
            turn=turn,
            observations=padded.shown.copy(),
            mask=mask[turn or 0, 0] & (turn is not None),
            rewards=rewards.copy(),
            terminated=padded.terminated.copy(),
            truncated=padded.truncated.copy(),
            episode_seed=padded.episode_seed,
        )

    def _turn(self) -> int | None:
        """The first asked agent that has not acted; None if all have, or at the end of the game."""
        asked: list[int] = np.flatnonzero(self._padded.obs.is_ready).tolist()
        return next((agent_id for agent_id in asked if agent_id not in self._given), None)


class AzulAECEnv(TurnAECEnv):
    """Azul as a `pettingzoo.AECEnv`; see `entity_env.interop.pettingzoo`.

    Observations of all agents are always current. An action is an id from 0 to 299. With a random
    starting player, `infos[agent]["episode_seed"]` is the seed of that episode of the game `azul`.

    Args:
        num_players: 2 to 4.
        reward_scheme, starting_player, max_rounds: as for `EnvConfig`.
        max_turns, illegal_actions, seed: as for `TurnAECEnv`.
        render_mode: "ansi" (`render` returns text), "human" (it writes to stdout), or None.
        features: encodes observations.

    Raises:
        UsageError: an invalid setting.
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
        features: PositionEncoder | None = None,
    ) -> None:
        config = EnvConfig(
            num_players=num_players,
            reward_scheme=reward_scheme,
            starting_player=starting_player,
            max_rounds=max_rounds,
        )
        self._env = AzulEnv(config, features=features)
        self._seeds: EpisodeSeeds = SeedsFrom(int(np.random.SeedSequence().generate_state(1)[0]))
        self._number = -1
        super().__init__(
            "azul",
            num_players,
            spaces.Box(-np.inf, np.inf, (self._env.obs_size,), np.float32),
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
        if seed is not None:
            self._seeds, self._number = SeedsFrom(seed), 0
        else:
            self._number += 1
        return self._seen_in(self._env.reset(seed=self._seeds[self._number]))

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
            episode_seed=self._seeds[self._number],
        )
