"""from_pettingzoo: AEC and parallel PettingZoo environments as games for several agents."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

from gymnasium import Space
from pettingzoo import AECEnv, ParallelEnv

from entity_env.authoring.agent import Agent
from entity_env.authoring.obs import Obs
from entity_env.core.spaces import ActionName, EntityName
from entity_env.errors import ProtocolError, SchemaError, UsageError, shown
from entity_env.interop.gymnasium.game import (
    AgentSpaces,
    ImportedGame,
    ImportedLoop,
    ImportedObs,
    SharedEnv,
    env_seed,
)
from entity_env.interop.gymnasium.masks import outer_masks
from entity_env.interop.gymnasium.spaces import AnySpace, EntityParts, FeatureNames
from entity_env.interop.results import (
    RESET,
    STEP,
    call_reset,
    called,
    checked_step,
    info_of,
    metrics_of,
    parts_by_agent,
    result_of_agent,
    value_of_agent,
)

AnyEnv: TypeAlias = "AECEnv[str, Any, Any] | ParallelEnv[str, Any, Any]"

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
    respawns: bool = False,
    **settings: object,
) -> ImportedGame:
    """Converts a PettingZoo environment to a `Game` with one agent per entry of `possible_agents`::

        game = from_pettingzoo(connect_four_v3.env)
        with VecEnv(game, 64) as vec:  # self-play: one network for both players
            train(vec)

    In an AEC environment, agents act in turn; in a parallel environment, all living agents act at
    once. Observations, actions and masks are converted as in `GymnasiumVecEnv`, with these
    additions:

    - Agents with the same spaces share an entity and an action. If spaces differ, each kind of
      agent has its own, named after the agents: `Env.adversary` and `Action.adversary`.

    An agent's rewards are summed from one of its observations to the next, whichever agents act in
    between. Rewards before its first action count as rewards of this action; an agent that never
    acts gets them in an episode of length 0. An agent whose episode is over gets `game_over` at
    once, with its own flags; `truncated` is set only if the agent is not also terminated. The
    environment is reset with the seed `Episode.seed` modulo 2**31.

    Args:
        source: a function that makes the environment, or an environment. Only one copy of the game
            at a time can use an environment, and the caller closes it.
        entity, action: as for `GymnasiumVecEnv`.
        entities, features: as for `GymnasiumVecEnv`, if all agents have the same spaces.
        name: name of the game; default: the name in the environment's metadata.
        respawns: agents may come back after their end, for another episode while others still
            play; see `Game`.
        settings: keyword arguments of the function.

    Raises:
        UsageError: not a PettingZoo environment, an environment without `possible_agents`, a space
            that cannot be converted, or an unknown setting.
    """
    options = {"entity": entity, "action": action, "entities": entities, "features": features}
    make = SharedEnv(source) if isinstance(source, AECEnv | ParallelEnv) else source
    if not callable(make):
        raise UsageError(f"{_NEEDS}: got {source!r:.80}")
    load = partial(_PettingZooLoop, make, options, name, respawns)
    return ImportedGame(load, settings)


class _Player:
    """An agent of the environment, with the agent of the game that decides for it."""

    def __init__(self, agent: Agent, shown: AgentSpaces) -> None:
        self.agent = agent
        self.kinds = shown.kinds
        self.score = 0.0
        """Sum of its rewards in this episode."""
        self.is_over = False
        self._spaces = shown
        self._has_acted = False

    def begin(self) -> None:
        self.score, self.is_over, self._has_acted = 0.0, False, False

    def turn(self, obs: object, info: Mapping[str, Any], call: str) -> Obs:
        """The observation for an action; arguments as for `AgentSpaces.show`."""
        # Rewards before the first action count as rewards of this action.
        score = self.score if self._has_acted else 0.0
        shown = self._spaces.show(obs, score, outer_masks(info, None), call)
        if self._has_acted:
            shown.metrics = metrics_of(info)
        self._has_acted = True
        return shown

    def end(self, obs: object, info: Mapping[str, Any], call: str = "", *, truncated: bool) -> None:
        self.is_over = True
        shown: Obs = ImportedObs(self.score)
        if obs is not None:
            masks = outer_masks(info, None)
            shown = self._spaces.show_last(obs, self.score, masks, call, truncated=truncated)
        shown.metrics = metrics_of(info)
        self.agent.game_over(shown, truncated=truncated)

    def action(self, answer: object) -> Any:  # noqa: ANN401
        return self._spaces.action(answer)


class _PettingZooLoop(ImportedLoop):
    def __init__(
        self,
        make: Callable[..., Any],
        options: Mapping[str, Any],
        name: str | None,
        respawns: bool,
        settings: Mapping[str, object],
    ) -> None:
        super().__init__(make, name or "from_pettingzoo")
        self.respawns = respawns
        env = self._made(settings)
        if not isinstance(env, AECEnv | ParallelEnv):
            raise UsageError(f"{_NEEDS}: got {env!r:.80}")
        try:
            self.rules = type(env.unwrapped)
            self.name = name or str(env.metadata.get("name") or self.rules.__name__)
            self.render_modes: Sequence[str] = env.metadata.get("render_modes") or ()
            self._is_parallel = isinstance(env, ParallelEnv)
            found = getattr(env, "possible_agents", ())
            self._names = _listed(found, f"{self.name}: env.possible_agents")
            if not self._names:
                raise UsageError(
                    f"{self.name} has no possible_agents: their number must be known beforehand"
                )
            if len({*self._names}) < len(self._names):
                raise UsageError(f"{self.name}: env.possible_agents repeats one: {self._names}")
            own = {
                each: (self._space(env, "observation", each), self._space(env, "action", each))
                for each in self._names
            }
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
        shown = []
        for each, suffix in _suffixes(own, kinds):
            named = {key: f"{options[key]}{suffix}" for key in ("entity", "action")}
            shown.append(AgentSpaces(*each, **{**options, **named}, env=env))
        self.shown: Sequence[AgentSpaces] = shown
        self._kind_of = {each: kinds.index(found) for each, found in own.items()}

    def _space(self, env: AnyEnv, what: str, agent: str) -> AnySpace:
        call = f"{self.name}: env.{what}_space of {agent!r}"
        space = called(call, getattr(env, f"{what}_space"), agent)
        if not isinstance(space, Space):
            raise UsageError(f"{call} must return a space of Gymnasium, got {shown(space)}")
        return space

    def _play(self, env: AnyEnv, agents: Any, seed: int) -> None:  # noqa: ANN401
        found: Sequence[Agent] = [agents] if self.num_agents == 1 else agents
        players = {
            name: _Player(agent, self.shown[self._kind_of[name]])
            for name, agent in zip(self._names, found, strict=True)
        }
        kind = _PlayAtOnce if self._is_parallel else _PlayInTurn
        play = kind(env, players, self.name, respawns=self.respawns)
        while True:
            for player in players.values():
                player.begin()
            if not play.episode(env_seed(seed)):
                return
            # End it also for agents that took no part in it or were removed without a flag.
            for player in players.values():
                if not player.is_over:
                    player.end(None, {}, truncated=False)
            if self.respawns:  # agents may be in different episodes: the caller starts the next
                return
            seed = found[0].seed


class _Play:
    """Plays episodes of an environment.

    Args:
        where: name of the environment, for errors.
        respawns: agents may come back after their end.
    """

    def __init__(
        self,
        env: Any,  # noqa: ANN401 - untyped
        players: Mapping[str, _Player],
        where: str,
        *,
        respawns: bool,
    ) -> None:
        self._env = env
        self._players = players
        self._where = where
        self._respawns = respawns

    def episode(self, seed: int) -> bool:
        """Plays an episode; False if the game is being closed."""
        raise NotImplementedError

    def _call(self, method: str, agent: str | None = None) -> str:
        """A call for errors, and the agent whose part is read or converted."""
        return f"{self._where}: env.{method}" + ("" if agent is None else f" of {agent!r}")

    def _agents(self) -> list[str]:
        call = self._call("agents")
        return _listed(called(call, getattr, self._env, "agents"), call)

    def _known(self, name: str, found: str) -> _Player:
        """An agent of `possible_agents`; `found` begins the error for any other."""
        if name not in self._players:
            raise SchemaError(
                f"{found} {name!r}, but possible_agents has only "
                f"{', '.join(map(repr, self._players))}"
            )
        return self._players[name]

    def _present(self, name: str) -> _Player:
        """An agent of `env.agents`; its next episode, if its last one has ended."""
        player = self._known(name, f"{self._where}: env.agents has")
        if player.is_over and not self._respawns:
            raise ProtocolError(
                f"{self._where}: {name!r} is in env.agents after its end: remove it there, or "
                "if agents may come back, make the game by from_pettingzoo(..., respawns=True)"
            )
        if player.is_over:
            player.begin()
        return player


class _PlayInTurn(_Play):
    def episode(self, seed: int) -> bool:
        env = self._env
        call_reset(env.reset, env, self._call("reset"), seed=seed)
        while self._agents():
            name = called(self._call("agent_selection"), getattr, env, "agent_selection")
            self._known(name, f"{self._where}: env.agent_selection is")
            player, call = self._present(name), self._call("last", name)
            obs, reward, terminated, truncated, info = checked_step(called(call, env.last), call)
            player.score += reward
            action = None
            if terminated or truncated:
                player.end(obs, info, call, truncated=not terminated)
            else:
                answer = player.agent.act(player.turn(obs, info, call), *player.kinds)
                if answer is None:
                    return False
                action = player.action(answer)
            called(self._call("step", name), env.step, action)
        return True


class _PlayAtOnce(_Play):
    def episode(self, seed: int) -> bool:
        env, method = self._env, "reset"
        call = self._call(method)
        result = call_reset(env.reset, env, call, seed=seed)
        obs, infos = parts_by_agent(result, call, RESET)
        while names := self._agents():
            asked = []
            for name in names:
                player, info = self._present(name), info_of(infos, name, call)
                own = value_of_agent(obs, name, call)
                shown = player.turn(own, info, self._call(method, name))
                asked.append(player.agent.act_async(shown, *player.kinds))
            answers = [pending.get() for pending in asked]
            if any(answer is None for answer in answers):
                return False
            each = zip(names, answers, strict=True)
            actions = {name: self._players[name].action(answer) for name, answer in each}
            method, call = "step", self._call("step")
            result = called(call, env.step, actions)
            obs, *step, infos = parts_by_agent(result, call, STEP)
            for name in step[0].keys() - self._players.keys():
                self._known(name, f"the rewards of {call} have")
            left = self._agents()
            for name, player in self._players.items():
                reward, over, cut = result_of_agent(step, name, call)
                if name not in names and name in left:
                    self._present(name)  # it arrives, perhaps again
                if player.is_over and reward:
                    raise SchemaError(
                        f"the reward of {name!r} of {call} is {reward:g} after its end, where it "
                        "counts for no action: give it with its end"
                    )
                player.score += reward
                if name in names and (over or cut):
                    info = info_of(infos, name, call)
                    own_call = self._call(method, name)
                    player.end(obs.get(name), info, own_call, truncated=not over)
        return True


def _listed(names: object, where: str) -> list[str]:
    """The names of agents, from a list or another collection."""
    if isinstance(names, Iterable) and not isinstance(names, str):
        return list(names)
    raise SchemaError(f"{where} must be a list of names, got {shown(names)}")


# ------------------------------------------------------------------ spaces


_Spaces: TypeAlias = tuple[AnySpace, AnySpace]
"""Observation and action space of an agent."""


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
