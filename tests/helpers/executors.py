"""Executors of many environments behind one interface: batches as plain lists, row by row.

`ByHand` is the slow reference that steps one `TrainAgentEnv` after another; all other executors
must return the same batches.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from entity_env import (
    GLOBAL_ENTITY,
    ActionName,
    ActionSpace,
    ContinuousActionSpace,
    Environment,
    Episode,
    Game,
    GlobalCategoricalActionMask,
    GlobalCategoricalActionSpace,
    Metric,
    Observation,
    ObsSpace,
    SelectEntityActionSpace,
    VecCategoricalActionMask,
    VecObs,
    VecSelectEntityActionMask,
    questions,
)
from entity_env.agents import Agent, TrainAgentEnv
from entity_env.agents.channels.channel import Transport
from entity_env.core.seeding import EpisodeSeeds
from entity_env.core.spaces import entity_widths
from entity_env.vec import Autoreset, VecEnv

Spaces: TypeAlias = tuple[ObsSpace, Mapping[ActionName, ActionSpace]]
Choices: TypeAlias = dict[ActionName, NDArray[Any]]


@dataclass
class Asked:
    """One question in plain lists: indices of actors and actees, and legal choices."""

    actors: list[int]
    actees: list[int]
    allowed: list[list[bool]]


@dataclass
class Row:
    """One row of a batch in plain lists; entity types without entities are left out."""

    reward: float
    terminated: bool
    truncated: bool
    features: dict[str, list[list[float]]] = field(default_factory=dict)
    hidden: dict[str, list[bool]] = field(default_factory=dict)
    asked: dict[str, Asked] = field(default_factory=dict)


@dataclass
class Batch:
    """A batch in plain lists; `final` holds (env_id, agent_id, row)."""

    rows: list[Row]
    final: list[tuple[int, int, Row]]
    episodes: list[Episode]
    metrics: dict[str, tuple[int, float, float, float]]


class Executor(Protocol):
    """Runs many copies of a game."""

    @property
    def is_over(self) -> list[bool]:
        """Like `VecEnv.is_over`."""

    def reset(self, seed: int | None = None) -> Batch:
        """Like `VecEnv.reset`."""

    def act(self, choices: Choices) -> Batch:
        """Like `VecEnv.act`."""

    def reset_envs(self, mask: Sequence[bool], seed: int | None = None) -> Batch:
        """Like `VecEnv.reset_envs`."""

    def close(self) -> None:
        """Like `VecEnv.close`."""


def plain_batch(batch: VecObs, spaces: Spaces) -> Batch:
    """Converts a batch to plain lists, after checking its form."""
    check_form(batch, spaces)
    final = [] if batch.final is None else plain_batch(batch.final, spaces).rows
    ids = [] if batch.final is None else zip(batch.final.env_id, batch.final.agent_id, strict=True)
    rows = zip(ids, final, strict=True)
    return Batch(
        rows=[_row_of_batch(batch, spaces, i) for i in range(len(batch))],
        final=sorted(((int(e), int(a), row) for (e, a), row in rows), key=lambda x: x[:2]),
        episodes=sorted(batch.episodes, key=lambda x: (x.env_id, x.agent_id, x.number)),
        metrics={name: (m.count, m.sum, m.min, m.max) for name, m in batch.metrics.items()},
    )


def check_form(batch: VecObs, spaces: Spaces) -> None:
    """Checks dtypes, shapes and names of a batch."""
    obs_space, action_space = spaces
    widths = entity_widths(obs_space, action_space)
    assert list(batch.features) == list(widths)
    for name, features in batch.features.items():
        assert features.values.dtype == np.float32
        assert features.values.shape[1:] == (widths[name],)
        assert len(features) == len(batch)
    for name, visible in batch.visible.items():
        assert visible.values.dtype == np.bool_
        assert visible.lengths.tolist() == batch.features[name].lengths.tolist()
    assert list(batch.action_masks) == list(action_space)
    assert batch.reward.dtype == np.float32
    assert batch.reward.shape == (len(batch),)
    for flags in (batch.terminated, batch.truncated, batch.done, batch.is_ready):
        assert flags.dtype == np.bool_
        assert flags.shape == (len(batch),)
    for ids in (batch.env_id, batch.agent_id):
        assert ids.dtype == np.int64
        assert ids.shape == (len(batch),)
    for mask in batch.action_masks.values():
        assert mask.actors.values.dtype == np.int64
        assert len(mask.actors) == len(batch)


def _row_of_batch(batch: VecObs, spaces: Spaces, i: int) -> Row:
    return Row(
        reward=float(batch.reward[i]),
        terminated=bool(batch.terminated[i]),
        truncated=bool(batch.truncated[i]),
        features={
            name: features[i].tolist()
            for name, features in batch.features.items()
            if features.lengths[i] and (name != GLOBAL_ENTITY or features.values.shape[1])
        },
        hidden={
            name: (~visible[i]).tolist()
            for name, visible in batch.visible.items()
            if not visible[i].all()
        },
        asked={
            name: _asked_of_batch(batch, name, space, i)
            for name, space in spaces[1].items()
            if batch.action_masks[name].actors.lengths[i]
        },
    )


def _asked_of_batch(batch: VecObs, name: ActionName, space: ActionSpace, i: int) -> Asked:
    mask = batch.action_masks[name]
    actors = mask.actors[i].tolist()
    actees: list[int] = []
    given = None if not hasattr(mask, "mask") or mask.mask is None else mask.mask[i]
    if isinstance(mask, VecSelectEntityActionMask):
        actees = mask.actees[i].tolist()
        num_choices = len(actees)
    else:
        assert not isinstance(space, SelectEntityActionSpace)
        num_choices = len(space)
        assert isinstance(mask, VecCategoricalActionMask) or given is None
    shape = (len(actors), num_choices)
    allowed = np.ones(shape, np.bool_) if given is None else given.reshape(shape)
    return Asked(actors, actees, allowed.tolist())


def plain_row(
    observation: Observation, spaces: Spaces, *, reward: float | None = None, ask: bool = True
) -> Row:
    """An observation in plain lists."""
    names = list(spaces[0].entities)
    features = {
        name: np.asarray(observation.features[name], np.float32).tolist()
        for name in names
        if observation.num_entities(name)
    }
    if len(observation.global_features):
        features[GLOBAL_ENTITY] = [np.asarray(observation.global_features, np.float32).tolist()]
    asked = {}
    for question in questions(observation, *spaces) if ask else ():
        mask = observation.actions[question.name]
        actors = observation.actor_indices(question.name, spaces[0]).tolist()
        actees = []
        if isinstance(question.space, SelectEntityActionSpace):
            actees = observation.actee_indices(question.name, spaces[0]).tolist()
        assert isinstance(mask, GlobalCategoricalActionMask) == isinstance(
            question.space, GlobalCategoricalActionSpace
        )
        if actors:
            asked[question.name] = Asked(actors, actees, question.allowed.tolist())
    return Row(
        reward=float(np.float32(observation.reward if reward is None else reward)),
        terminated=observation.terminated,
        truncated=observation.truncated,
        features=features,
        hidden={
            name: [not seen for seen in visible]
            for name, visible in observation.visible.items()
            if not np.all(np.asarray(visible, dtype=np.bool_))
        },
        asked=asked,
    )


def choose(batch: Batch, spaces: Spaces, rng: np.random.Generator) -> Choices:
    """Legal choices for all questions of a batch."""
    choices: Choices = {}
    for name, space in spaces[1].items():
        allowed = [row for r in batch.rows if name in r.asked for row in r.asked[name].allowed]
        if isinstance(space, ContinuousActionSpace):
            shape = (len(allowed), len(space))
            choices[name] = rng.uniform(space.low, space.high, shape).astype(np.float32)
        else:
            chosen = [int(rng.choice(np.flatnonzero(row))) for row in allowed]
            choices[name] = np.array(chosen, dtype=np.int64)
    return choices


class ByHand:
    """Steps one `TrainAgentEnv` after another, as simply as possible."""

    def __init__(
        self,
        game: Game,
        num_envs: int,
        seed: int = 0,
        autoreset: Autoreset = "same_step",
        transport: Transport = "greenlet",
    ) -> None:
        self._envs = [
            TrainAgentEnv(game, transport=transport, seed=seed, env_id=i) for i in range(num_envs)
        ]
        self._spaces = (game.obs_space(), game.action_space())
        self._autoreset = autoreset
        self._shown: list[list[Observation]] = [[] for _ in self._envs]
        self._rows: list[list[Row]] = [[] for _ in self._envs]
        self._final: list[tuple[int, int, Row]] = []
        self._episodes: list[Episode] = []
        self._metrics: dict[str, Metric] = {}

    @property
    def is_over(self) -> list[bool]:
        return [env.is_over for env in self._envs]

    def reset(self, seed: int | None = None) -> Batch:
        return self.reset_envs([True] * len(self._envs), seed)

    def reset_envs(self, mask: Sequence[bool], seed: int | None = None) -> Batch:
        self._clear()
        for i, env in enumerate(self._envs):
            if mask[i]:
                self._show(i, env.reset_all(seed=None if seed is None else EpisodeSeeds(seed, i)))
            else:
                self._rows[i] = [replace(row, reward=0.0) for row in self._rows[i]]
                for row in () if env.is_over else self._rows[i]:
                    row.terminated = row.truncated = False
                for observation in self._shown[i]:
                    self._count_metrics(observation)
        if self._autoreset != "same_step":
            self._final = []
        return self._batch()

    def act(self, choices: Choices) -> Batch:
        left = {name: list(values) for name, values in choices.items()}
        answers = [self._answers(i, left) for i in range(len(self._envs))]
        assert not any(left.values()), "more choices than actors"
        self._clear()
        for i, env in enumerate(self._envs):
            self._show(i, env.reset_all() if env.is_over else env.act_all(answers[i]))
        return self._batch()

    def close(self) -> None:
        for env in self._envs:
            env.close()

    def _answers(self, i: int, left: dict[ActionName, list[Any]]) -> list[Any]:
        """Actions of the agents of one environment; None for agents that are not asked."""
        answers: list[Any] = []
        for observation in self._shown[i]:
            given = {}
            is_asked = observation.actions and not observation.done
            for question in questions(observation, *self._spaces) if is_asked else ():
                count = len(question.actors)
                given[question.name] = question.action(left[question.name][:count])
                del left[question.name][:count]
            answers.append(given if is_asked else None)
        return answers

    def _show(self, i: int, observations: list[Observation]) -> None:
        """Records an environment's observations, and starts its next episode if required."""
        num_agents = len(observations)
        reward = [0.0] * num_agents
        flags = [(False, False)] * num_agents
        while True:
            self._episodes += self._envs[i].episodes
            for agent_id, observation in enumerate(observations):
                reward[agent_id] += observation.reward
                old = flags[agent_id]
                new = observation.terminated, observation.truncated
                flags[agent_id] = old[0] or new[0], old[1] or new[1]
                self._count_metrics(observation)
                if observation.done:
                    row = plain_row(observation, self._spaces)
                    self._final.append((i, agent_id, row))
                    if self._autoreset == "same_step":
                        observations[agent_id] = Observation(reward=0.0)
            if self._autoreset != "same_step" or not self._envs[i].is_over:
                break
            observations = list(self._envs[i].reset_all())
        self._shown[i] = observations
        self._rows[i] = [
            replace(
                plain_row(o, self._spaces, reward=r, ask=not o.done),
                terminated=f[0],
                truncated=f[1],
            )
            for o, r, f in zip(observations, reward, flags, strict=True)
        ]

    def _count_metrics(self, observation: Observation) -> None:
        for name, value in observation.metrics.items():
            self._metrics.setdefault(name, Metric()).push(value)

    def _clear(self) -> None:
        self._final, self._episodes, self._metrics = [], [], {}

    def _batch(self) -> Batch:
        return Batch(
            rows=[row for rows in self._rows for row in rows],
            final=sorted(self._final, key=lambda x: x[:2]),
            episodes=sorted(self._episodes, key=lambda x: (x.env_id, x.agent_id, x.number)),
            metrics={name: (m.count, m.sum, m.min, m.max) for name, m in self._metrics.items()},
        )


class Vectorized:
    """A `VecEnv` that returns plain batches."""

    def __init__(self, vec: VecEnv) -> None:
        self.vec = vec
        self._spaces = vec.obs_space(), vec.action_space()

    @property
    def is_over(self) -> list[bool]:
        found: list[bool] = self.vec.is_over.tolist()
        return found

    def reset(self, seed: int | None = None) -> Batch:
        return plain_batch(self.vec.reset(seed), self._spaces)

    def act(self, choices: Choices) -> Batch:
        return plain_batch(self.vec.act(choices), self._spaces)

    def reset_envs(self, mask: Sequence[bool], seed: int | None = None) -> Batch:
        return plain_batch(self.vec.reset_envs(mask, seed), self._spaces)

    def close(self) -> None:
        self.vec.close()


class SteppedGame(Environment):
    """A game for one agent as an environment whose `reset(seed)` plays with exactly that seed.

    Its episodes therefore equal those of the game in a `VecEnv`, which derives the same seeds.
    """

    def __init__(self, game: Game, transport: Transport) -> None:
        self._seed = 0

        def play(agent: Agent, *, seed: int) -> None:
            game.start([agent], self._seed)

        schema = game.schema
        inner = Game(
            play,
            entities=[kind.cls for kind in schema.entities],
            actions=list(schema.actions),
            global_features=None if schema.globals is None else schema.globals.cls,
        )
        self._env = TrainAgentEnv(inner, transport=transport)

    def obs_space(self) -> ObsSpace:
        return self._env.obs_space()

    def action_space(self) -> Mapping[ActionName, ActionSpace]:
        return self._env.action_space()

    def reset(self, *, seed: int | None = None) -> Observation:
        assert seed is not None
        self._seed = seed
        return self._env.reset(seed=0)

    def act(self, actions: Mapping[ActionName, Any]) -> Observation:
        return self._env.act(actions)

    def close(self) -> None:
        self._env.close()


Make: TypeAlias = Callable[[Game, int, int, Autoreset], Executor]
"""Makes an executor of a game, a number of environments, the seed of the run, and a mode."""


def _games_in(transport: Transport) -> Make:
    return lambda game, num_envs, seed, autoreset: Vectorized(
        VecEnv(game, num_envs, seed=seed, autoreset=autoreset, transport=transport)
    )


def _environments_in(transport: Transport) -> Make:
    return lambda game, num_envs, seed, autoreset: Vectorized(
        VecEnv(lambda: SteppedGame(game, transport), num_envs, seed=seed, autoreset=autoreset)
    )


def _in_workers(game: Game, num_envs: int, seed: int, autoreset: Autoreset) -> Executor:
    return Vectorized(VecEnv(game, num_envs, min(2, num_envs), seed=seed, autoreset=autoreset))


EXECUTORS: dict[str, Make] = {
    "games-greenlet": _games_in("greenlet"),
    "games-thread": _games_in("thread"),
    "environments-greenlet": _environments_in("greenlet"),
    "environments-thread": _environments_in("thread"),
    "by-hand-thread": partial(ByHand, transport="thread"),
    "workers": _in_workers,
}
"""Executors that must equal `ByHand`. Those of environments take games for one agent."""
