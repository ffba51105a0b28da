"""Agents of a page, which need no numpy: `RandomPlayer`, and `NetworkPlayer` for a network in
JavaScript."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, Final, TypeAlias

from entity_env.agents.policy_agent import TIE, EpisodeMemory, PolicyAgent, past_steps
from entity_env.authoring.local_run import AgentRun, PastStep, Thoughts
from entity_env.core.action_request import Question, choose_in_order
from entity_env.core.observation import Action, Observation
from entity_env.core.spaces import ActionName, ContinuousActionSpace, SelectEntityActionSpace

_NUM_WEIGHED: Final = 32
_NUM_ENTITIES: Final = 1000
"""Earlier observations that are left out one by one, and entities that they may have together:
fewer than in numpy, which is faster."""
Think: TypeAlias = Callable[[str], str]
"""`Network.think` of `network.mjs`, with JSON for its argument and its result."""


class RandomPlayer(PolicyAgent):
    """Chooses uniformly among the allowed actions, like `RandomAgent` but with other numbers.

    Args:
        seed: of the choices.
    """

    _takes_plain = True

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._rng = Random(seed)

    def decide(self, observation: Observation) -> Mapping[ActionName, Action]:
        return choose_in_order(
            self.questions(observation),
            lambda asked: [self._chosen(asked, actor) for actor in range(len(asked.actors))],
        )

    def _chosen(self, question: Question, actor: int) -> int | list[float]:
        space = question.space
        if isinstance(space, ContinuousActionSpace):
            return [self._rng.uniform(*each) for each in zip(space.low, space.high, strict=True)]
        return self._rng.choice(question.legal(actor))


class NetworkPlayer(PolicyAgent):
    """Plays a trained network that runs in JavaScript.

    With the same probabilities, a seed gives other samples than `NumpyAgent`.

    Args:
        think: of the network.
        seed: of the samples.
        greedy: takes the most probable action instead of a sample.
    """

    _takes_plain = True

    def __init__(self, think: Think, seed: int, *, greedy: bool = False) -> None:
        super().__init__()
        self._think, self._rng, self._greedy = think, Random(seed), greedy
        self._memory: EpisodeMemory[list[float]] = EpisodeMemory()
        """Its state is a list of numbers, which is empty if the network has no memory."""

    def join(self, run: AgentRun) -> None:
        super().join(run)
        self._memory.begin()

    def end_episode(self) -> None:
        self._memory.begin()

    def watch(self, observation: Observation) -> None:
        if observation.done:
            self._memory.begin()
        elif self._memory.state != []:
            self._remember(observation)

    def decide(self, observation: Observation) -> Mapping[ActionName, Action]:
        before = self._memory.state
        chosen: dict[ActionName, Sequence[Any]] = {}
        found = self._remember(observation)

        def choose(question: Question) -> Sequence[Any]:
            depends = bool(question.space.given)  # on choices that the network has yet to read
            read = self._thoughts(observation, before, chosen) if depends else found
            values = chosen[question.name] = self._choose(question, read)
            return values

        return choose_in_order(self.questions(observation), choose)

    def _remember(self, observation: Observation) -> dict[str, Any]:
        found = self._thoughts(observation, self._memory.state)
        has_actor = any(question.actors for question in self.questions(observation))
        self._memory.add(observation, found.get("state"), has_actor=has_actor)
        return found

    def think(self, observation: Observation) -> Thoughts | None:
        found = self._thoughts(observation, self._memory.before(observation))
        return Thoughts(found["probabilities"], found.get("value"))

    def weigh_past(self, observation: Observation) -> list[PastStep]:
        num_entities = sum(map(len, observation.features.values()))
        most = min(_NUM_WEIGHED, max(1, _NUM_ENTITIES // max(1, num_entities)))
        steps, earlier, state = self._memory.earlier(observation, most)
        if self._memory.state == [] or not earlier or not observation.actions:
            return []
        given = self._given(observation, state)
        given["past"] = [self._given(each, None) for each in earlier]
        found: dict[str, Any] = json.loads(self._think(json.dumps(given)))
        whole, *without = found["without"]
        changes = [_change(whole, each) for each in without]
        return past_steps(steps, changes, [each["value"] for each in without])

    def _thoughts(
        self,
        observation: Observation,
        state: list[float] | None,
        chosen: Mapping[ActionName, Sequence[Any]] | None = None,
    ) -> dict[str, Any]:
        given = self._given(observation, state)
        if chosen:
            given["chosen"] = chosen
        found: dict[str, Any] = json.loads(self._think(json.dumps(given)))
        return found

    def _given(self, observation: Observation, state: list[float] | None) -> dict[str, Any]:
        return {
            "features": observation.features,
            "globals": observation.global_features,
            "visible": observation.visible,
            "actions": {
                each.name: self._asked_of(each, observation) for each in self.questions(observation)
            },
            "state": state,
        }

    def _asked_of(self, question: Question, observation: Observation) -> dict[str, object]:
        space, name = self.schema.obs_space(), question.name
        actees = isinstance(question.space, SelectEntityActionSpace)
        has_mask = not isinstance(question.space, ContinuousActionSpace)
        return {
            "actors": [*observation.actor_positions(name, space)],
            "actees": [*observation.actee_positions(name, space)] if actees else None,
            "mask": question.allowed if has_mask else None,
        }

    def _choose(self, question: Question, found: Mapping[str, Any]) -> Sequence[Any]:
        if isinstance(question.space, ContinuousActionSpace):
            means, spread = found["means"][question.name], found["deviations"][question.name]
            return [self._numbers(row, spread, question.space) for row in means]
        rows = found["probabilities"][question.name]
        return [self._choice(question.legal(i), row) for i, row in enumerate(rows)]

    def _choice(self, legal: Sequence[int], probs: Sequence[float]) -> int:
        if self._greedy:
            least = max(probs[i] for i in legal) - TIE
            return next(i for i in legal if probs[i] >= least)
        return self._rng.choices(legal, [probs[i] for i in legal])[0]

    def _numbers(
        self, means: Sequence[float], deviations: Sequence[float], space: ContinuousActionSpace
    ) -> list[float]:
        spread = [0.0] * len(means) if self._greedy else deviations
        bounds = zip(means, spread, space.low, space.high, strict=True)
        return [min(max(self._rng.gauss(mean, s), low), high) for mean, s, low, high in bounds]


def _change(whole: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """As `PastStep.change`, between two results of `think`."""
    changes = [0.0]
    for name, rows in whole["probabilities"].items():
        for one, two in zip(rows, other["probabilities"][name], strict=True):
            changes.append(sum(abs(p - q) for p, q in zip(one, two, strict=True)) / 2)
    for name, rows in whole["means"].items():
        for one, two in zip(rows, other["means"][name], strict=True):
            numbers = zip(one, two, whole["deviations"][name], strict=True)
            distance = math.hypot(*((x - y) / deviation for x, y, deviation in numbers))
            changes.append(math.erf(distance / math.sqrt(8)))
    return max(changes)
