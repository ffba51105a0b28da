"""from_pettingzoo: AEC and parallel PettingZoo environments as games for several agents."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv

from entity_env.authoring.agent import Agent
from entity_env.authoring.obs import Obs
from entity_env.core.spaces import ActionName, EntityName
from entity_env.errors import UsageError
from entity_env.interop.gymnasium.game import (
    AgentSpaces,
    ImportedGame,
    ImportedLoop,
    SharedEnv,
    env_seed,
)
from entity_env.interop.gymnasium.spaces import AnySpace, EntityParts, FeatureNames

AnyEnv: TypeAlias = "AECEnv[str, Any, Any] | ParallelEnv[str, Any, Any]"

_MASK: Final = "action_mask"
_OBSERVATION: Final = "observation"
_NEEDS: Final = (
    "from_pettingzoo needs an AECEnv or a ParallelEnv, or a function that makes one, such as "
    "connect_four_v3.env"
)


def from_pettingzoo(
    source: AnyEnv | Callable[..., AnyEnv],
    *,
    entity: EntityName = "Env",
    action: ActionName = "Action",
    entities: EntityParts | None = None,
    features: FeatureNames | None = None,
    name: str | None = None,
    **settings: object,
) -> ImportedGame:
    """Converts a PettingZoo environment to a `Game` with one agent per entry of `possible_agents`::

        game = from_pettingzoo(connect_four_v3.env)
        with VecEnv(game, 64) as vec:  # self-play: one network for both players
            train(vec)

    In an AEC environment, agents act in turn; in a parallel environment, all living agents act at
    once. Observations, actions and masks are converted as in `GymnasiumVecEnv`, with these
    additions:

    - A part `action_mask` of a `Dict` observation is the mask of a `Discrete` action, as in the
      classic games; so is `info["action_mask"]`. If the only other part is `observation`, that part
      becomes the observation.
    - Agents with the same spaces share an entity and an action. If spaces differ, each kind of
      agent has its own, named after the agents: `Env.adversary` and `Action.adversary`.

    An agent's rewards are summed from one of its observations to the next, whichever agents act in
    between; rewards before its first observation are not counted. An agent whose episode is over
    gets `game_over` at once, with its own flags; `truncated` is set only if the agent is not also
    terminated. The environment is reset with the seed `Episode.seed` modulo 2**31.

    Args:
        source: a function that makes the environment, or an environment. Only one copy of the game
            at a time can use an environment, and the caller closes it.
        entity, action: as for `GymnasiumVecEnv`.
        entities, features: as for `GymnasiumVecEnv`, if all agents have the same spaces.
        name: name of the game; default: the name in the environment's metadata.
        settings: keyword arguments of the function.

    Raises:
        UsageError: not a PettingZoo environment, an environment without `possible_agents`, a space
            that cannot be converted, or an unknown setting.
    """
    options = {"entity": entity, "action": action, "entities": entities, "features": features}
    make = SharedEnv(source) if isinstance(source, AECEnv | ParallelEnv) else source
    if not callable(make):
        raise UsageError(f"{_NEEDS}: got {source!r:.80}")
    return ImportedGame(partial(_PettingZooLoop, make, options, name), settings)


class _Player:
    def __init__(self, shown: AgentSpaces, masked: tuple[bool, bool]) -> None:
        self._shown = shown
        self._is_masked, self._is_alone = masked
        self.kinds = shown.kinds
        self.score = 0.0
        self.is_over = False

    def begin(self) -> None:
        self.score, self.is_over = 0.0, False

    def show(self, obs: Any, info: Mapping[str, Any]) -> Obs:  # noqa: ANN401
        mask = info.get(_MASK)
        if self._is_masked:
            mask = obs[_MASK]
            obs = obs[_OBSERVATION] if self._is_alone else obs
        return self._shown.show(obs, self.score, mask)

    def end(self, agent: Agent, obs: object, *, truncated: bool) -> None:
        self.is_over = True
        shown = Obs(self.score) if obs is None else self.show(obs, {})
        shown.masks = None
        agent.game_over(shown, truncated=truncated)

    def action(self, answer: object) -> Any:  # noqa: ANN401
        return self._shown.action(answer)


class _PettingZooLoop(ImportedLoop):
    def __init__(
        self,
        make: Callable[..., Any],
        options: Mapping[str, Any],
        name: str | None,
        settings: Mapping[str, object],
    ) -> None:
        super().__init__(make, name or "from_pettingzoo")
        env = self._made(settings)
        if not isinstance(env, AECEnv | ParallelEnv):
            raise UsageError(f"{_NEEDS}: got {env!r:.80}")
        try:
            self.rules = type(env.unwrapped)
            self.name = name or str(env.metadata.get("name") or self.rules.__name__)
            self.render_modes: Sequence[str] = env.metadata.get("render_modes") or ()
            self._is_parallel = isinstance(env, ParallelEnv)
            self._names: list[str] = list(getattr(env, "possible_agents", ()))
            if not self._names:
                raise UsageError(
                    f"{self.name} has no possible_agents: their number must be known beforehand"
                )
            own = {each: _spaces_of(env, each) for each in self._names}
        finally:
            self._release(env)
        self.num_agents = len(self._names)
        kinds: list[_Spaces] = []
        for each in own.values():
            if each not in kinds:
                kinds.append(each)
        for setting in ("entities", "features"):
            if len(kinds) > 1 and options[setting]:
                raise UsageError(
                    f"{self.name}: {setting} is for agents that all have the same spaces, and "
                    f"there are {len(kinds)} kinds of agents: leave it out"
                )
        shown = [each.shown(options, suffix) for each, suffix in _suffixes(own, kinds)]
        self.shown: Sequence[AgentSpaces] = shown
        self._kind_of = {each: kinds.index(found) for each, found in own.items()}
        self._masked = [(each.is_masked, each.is_alone) for each in kinds]

    def _play(self, env: AnyEnv, agents: Any, seed: int) -> None:  # noqa: ANN401
        found: Sequence[Agent] = [agents] if self.num_agents == 1 else agents
        kinds = [(self.shown[i], self._masked[i]) for i in self._kind_of.values()]
        players = {
            name: (agent, _Player(*kind))
            for name, agent, kind in zip(self._names, found, kinds, strict=True)
        }
        play = _play_parallel if self._is_parallel else _play_in_turn
        while True:
            for _, player in players.values():
                player.begin()
            if not play(env, players, env_seed(seed)):
                return
            # End it also for agents that took no part in it or were removed without a flag.
            for agent, player in players.values():
                if not player.is_over:
                    player.end(agent, None, truncated=False)
            seed = found[0].seed


_Players: TypeAlias = Mapping[str, tuple[Agent, _Player]]


def _play_in_turn(env: AECEnv[str, Any, Any], players: _Players, seed: int) -> bool:
    """Plays an episode; False if the game is being closed."""
    env.reset(seed=seed)
    while env.agents:
        agent, player = players[env.agent_selection]
        obs, reward, terminated, truncated, info = env.last()
        player.score += float(reward)
        if terminated or truncated:
            if not player.is_over:
                player.end(agent, obs, truncated=not terminated)
            env.step(None)
            continue
        answer = agent.act(player.show(obs, info), *player.kinds)
        if answer is None:
            return False
        env.step(player.action(answer))
    return True


def _play_parallel(env: ParallelEnv[str, Any, Any], players: _Players, seed: int) -> bool:
    """Plays an episode; False if the game is being closed."""
    obs, infos = env.reset(seed=seed)
    while env.agents:
        names = list(env.agents)
        asked = []
        for name in names:
            agent, player = players[name]
            shown = player.show(obs[name], infos.get(name, {}))
            asked.append(agent.act_async(shown, *player.kinds))
        answers = [pending.get() for pending in asked]
        if any(answer is None for answer in answers):
            return False
        actions = {
            name: players[name][1].action(answer)
            for name, answer in zip(names, answers, strict=True)
        }
        obs, rewards, terminated, truncated, infos = env.step(actions)
        for name in names:
            agent, player = players[name]
            player.score += float(rewards.get(name, 0.0))
            is_over = bool(terminated.get(name))
            if is_over or truncated.get(name):
                player.end(agent, obs.get(name), truncated=not is_over)
    return True


# ------------------------------------------------------------------ spaces


@dataclass(frozen=True)
class _Spaces:
    """Spaces of an agent, without the mask in its observation."""

    observation: AnySpace
    action: AnySpace
    is_masked: bool
    is_alone: bool
    """True if `observation` is the only part other than the mask."""

    def shown(self, options: Mapping[str, Any], suffix: str) -> AgentSpaces:
        named = {key: f"{options[key]}{suffix}" for key in ("entity", "action")}
        return AgentSpaces(self.observation, self.action, **{**options, **named})


def _spaces_of(env: AnyEnv, agent: str) -> _Spaces:
    shown, action = env.observation_space(agent), env.action_space(agent)
    mask = shown.spaces.get(_MASK) if isinstance(shown, spaces.Dict) else None
    if mask is None or not isinstance(action, spaces.Discrete) or mask.shape != (action.n,):
        return _Spaces(shown, action, is_masked=False, is_alone=False)
    rest = {key: part for key, part in shown.spaces.items() if key != _MASK}
    is_alone = list(rest) == [_OBSERVATION]
    left = rest[_OBSERVATION] if is_alone else spaces.Dict(rest)
    return _Spaces(left, action, is_masked=True, is_alone=is_alone)


def _suffixes(
    own: Mapping[str, _Spaces], kinds: Sequence[_Spaces]
) -> Iterator[tuple[_Spaces, str]]:
    """Kinds of agents with name suffixes: `.adversary` for `adversary_0` and `adversary_1`.

    The suffix is empty if there is only one kind.
    """
    if len(kinds) == 1:
        yield kinds[0], ""
        return
    stems = {name: re.sub(r"_?\d+$", "", name) or name for name in own}
    for kind in kinds:
        named = [name for name, each in own.items() if each == kind]
        others = {stems[name] for name, each in own.items() if each != kind}
        stem = stems[named[0]]
        yield kind, f".{named[0] if stem in others else stem}"
