"""`CheckPlan`: what the stages of a check play; and their random answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from entity_env.authoring.action_type import ActionType
from entity_env.authoring.game import Game
from entity_env.authoring.obs import Obs, answers_to
from entity_env.authoring.schema import Schema
from entity_env.authoring.step_timeout import StepTimeout
from entity_env.check.violations import Violations
from entity_env.core.action_request import chosen_values, questions, random_answers
from entity_env.core.observation import Observation
from entity_env.core.spaces import ContinuousActionSpace
from entity_env.errors import SchemaError


@dataclass(frozen=True)
class CheckPlan:
    """Settings of the stages of a check.

    Args:
        violations: the list to which a stage adds.
        episodes, max_steps, seed: as for `check_game`.
        timeout: timeout of the game's steps; already open.
        step_timeout_s: its seconds, for stages that open another timeout.
        on_step: called with the name of the stage at every step.
        num_answers: maximum number of answered calls of `act`, for a game too slow to play all
            episodes; None = no limit.
        decisions: after `episodes`, more whole episodes are played up to this number of decisions.
        changes: number of changes of the score after which no more episodes are played; 0 = any.
    """

    game: Game
    violations: Violations
    episodes: int
    max_steps: int
    seed: int
    timeout: StepTimeout
    step_timeout_s: float | None
    on_step: Callable[[str], None]
    num_answers: int | None = None
    decisions: int = 0
    changes: int = 0

    def rngs(self) -> list[np.random.Generator]:
        """One generator per agent, so answers do not depend on the order of agents."""
        return [np.random.default_rng([self.seed, i]) for i in range(self.game.num_agents)]


def random_answer(
    observation: Observation,
    kinds: Sequence[ActionType[Any]],
    obs: Obs,
    schema: Schema,
    rng: np.random.Generator,
) -> object:
    """A random legal result of `act` for these actions."""
    asked = questions(observation, schema.obs_space(), schema.action_space())
    return answers_to(kinds, obs, chosen_values(asked, random_answers(asked, rng)))


def has_choice(observation: Observation, schema: Schema) -> bool:
    """Whether an observation has a question with more than one legal answer."""
    try:
        asked = questions(observation, schema.obs_space(), schema.action_space())
    except SchemaError:  # already listed as a violation
        return True
    return any(
        isinstance(each.space, ContinuousActionSpace)
        or bool((np.sum(each.allowed, axis=-1) > 1).any())
        for each in asked
    )
