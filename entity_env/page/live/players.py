"""Agents of a page, which need no numpy: `RandomPlayer`, and `NetworkPlayer` for a network in
JavaScript."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, TypeAlias

from entity_env.agents.policy_agent import TIE, PolicyAgent
from entity_env.authoring.local_run import AgentRun, Thoughts
from entity_env.authoring.obs import Obs
from entity_env.core.action_request import Question, choose_in_order
from entity_env.core.observation import Action, Observation
from entity_env.core.spaces import ActionName, ContinuousActionSpace, SelectEntityActionSpace

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
        self._state: list[float] | None = None
        """Numbers that the network remembers; None = zeros."""
        self._last: tuple[Observation | None, list[float] | None] = None, None
        """The last observation, and what was remembered before it."""

    def join(self, run: AgentRun) -> None:
        super().join(run)
        self._state = None

    def game_over(self, obs: Obs | None = None, *, truncated: bool = False) -> None:
        super().game_over(obs, truncated=truncated)
        self._state = None

    def watch(self, observation: Observation) -> None:
        if self._state == []:  # the network has no memory
            return
        found = self._thoughts(observation, self._state)
        self._last = observation, self._state
        self._state = None if observation.done else found.get("state")

    def decide(self, observation: Observation) -> Mapping[ActionName, Action]:
        before = self._state
        chosen: dict[ActionName, Sequence[Any]] = {}
        found = self._thoughts(observation, before)
        self._last, self._state = (observation, before), found.get("state")

        def choose(question: Question) -> Sequence[Any]:
            depends = bool(question.space.given)  # on choices that the network has yet to read
            read = self._thoughts(observation, before, chosen) if depends else found
            values = chosen[question.name] = self._choose(question, read)
            return values

        return choose_in_order(self.questions(observation), choose)

    def think(self, observation: Observation) -> Thoughts | None:
        last, before = self._last
        found = self._thoughts(observation, before if last is observation else self._state)
        return Thoughts(found["probabilities"], found.get("value"))

    def _thoughts(
        self,
        observation: Observation,
        state: list[float] | None,
        chosen: Mapping[ActionName, Sequence[Any]] | None = None,
    ) -> dict[str, Any]:
        asked = {
            each.name: self._asked_of(each, observation) for each in self.questions(observation)
        }
        given = {
            "features": observation.features,
            "globals": observation.global_features,
            "visible": observation.visible,
            "actions": asked,
            "state": state,
        }
        if chosen:
            given["chosen"] = chosen
        found: dict[str, Any] = json.loads(self._think(json.dumps(given)))
        return found

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
