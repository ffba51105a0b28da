"""Checks that episodes can be repeated: each alone, and in another process."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from entity_env.agents.policy_agent import PolicyAgent
from entity_env.authoring.agent import Agent
from entity_env.authoring.game import Game
from entity_env.authoring.local_run import Turn
from entity_env.check.plan import CheckPlan
from entity_env.core.action_request import random_answers
from entity_env.core.observation import Action, Observation
from entity_env.core.seeding import EpisodeSeeds
from entity_env.core.spaces import ActionName
from entity_env.errors import ReplayError
from entity_env.replay import Replay, ReplayWriter, verify_in_new_process

_LOGGER: Final = logging.getLogger("entity_env.check")
_START_S: Final = 60.0
"""Seconds for a process to start and import a game."""
_SLOWER: Final = 10
"""Allowed factor between playing in another process and in this one."""


def add_irreproducible(
    plan: CheckPlan, cause: Callable[[], str], *, read: str, new_process: bool
) -> None:
    """Adds a violation if an episode differs when played alone, or in another process.

    Args:
        cause: returns the reason, as text to append to a sentence.
        read: a sentence about a generator or clock that the game reads; "" if it reads none.
    """
    game, violations, step_timeout_s = plan.game, plan.violations, plan.step_timeout_s
    violations.place = violations.line = ""
    writer = _Writer()
    answers_left = (
        iter(range(plan.num_answers)) if plan.num_answers is not None else itertools.count()
    )
    agents = [_Leaving(plan, i, answers_left) for i in range(game.num_agents)]
    num_before = len(violations)
    with violations.of_game("play"):
        game.run(
            *agents,
            seed=plan.seed,
            episodes=plan.episodes,
            watch=writer,
            step_timeout_s=step_timeout_s,
        )
    if len(violations) > num_before:
        return
    # If agents start their next episodes at different times, only the first can be played alone.
    replays = writer.replays[:1] if writer.overlaps else writer.replays
    start = time.monotonic()
    # Skip the first, so each episode comes one place earlier: this reveals state that counts them.
    for number, replay in enumerate(replays[1:], 1):
        plan.on_step("playing each episode alone")
        found = replay.verify(game, step_timeout_s=step_timeout_s)
        if found is not None:
            violations.add(
                f"an episode alone differs from the same episode after others: "
                f"{_place(number, replay)}, {found}{cause()}; create new state for every "
                "episode, from its own seed"
            )
            return
    if not new_process:
        return
    plan.on_step("playing in another process")
    timeout_s = _START_S + _SLOWER * (time.monotonic() - start)
    try:
        results = verify_in_new_process(
            game, replays, timeout_s=timeout_s, step_timeout_s=step_timeout_s
        )
    except ReplayError as error:
        _LOGGER.warning("%s was not played in another process: %s", game.name, error)
        return
    for number, (found, replay) in enumerate(zip(results, replays, strict=True)):
        if found is not None:
            cure = read or "sort the items of sets, and let only the seed decide"
            violations.add(
                "not reproducible in another process with another PYTHONHASHSEED: "
                f"{_place(number, replay)}, {found}; {cure}"
            )
            return


def _place(number: int, replay: Replay) -> str:
    return f"episode {number} (seed {replay.header.episode_seed})"


class _Leaving(PolicyAgent):
    """Plays at random; leaves if no answers are left, or if an episode takes too long.

    The agents of a game share `answers_left`.
    """

    def __init__(self, plan: CheckPlan, agent_id: int, answers_left: Iterator[int]) -> None:
        super().__init__()
        self._rng = np.random.default_rng(plan.seed + agent_id)
        self._plan = plan
        self._answers_left = answers_left

    def decide(self, observation: Observation) -> Mapping[ActionName, Action] | None:
        self._plan.on_step("recording")
        is_last = next(self._answers_left, None) is None
        if is_last or self._run.num_steps >= self._plan.max_steps:
            return None
        return random_answers(self.questions(observation), self._rng)


class _Writer(ReplayWriter):
    def __init__(self) -> None:
        super().__init__()
        self.overlaps = False
        """Whether an agent started an episode before others had ended theirs."""

    def begin_run(
        self, game: Game, agents: Sequence[Agent], seeds: EpisodeSeeds, episodes: int
    ) -> None:
        # Files cannot store every setting, so omit them: the game that replays has the settings.
        bare = object.__new__(type(game))
        bare.__dict__.update(game.__dict__, settings={})
        super().begin_run(bare, agents, seeds, episodes)

    def __call__(self, turn: Turn) -> None:
        super().__call__(turn)
        self.overlaps = self.overlaps or len(self._open) > 1
