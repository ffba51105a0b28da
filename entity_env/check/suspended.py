"""Plays a game as training does: suspended at every `act`, interleaved with another copy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from entity_env.agents.channels.game_runner import GameRunner, TrainAgent
from entity_env.authoring.action_type import ActionType
from entity_env.authoring.game_traceback import notes_of
from entity_env.authoring.obs import Obs
from entity_env.authoring.to_observation import to_observation
from entity_env.check.direct_play import DirectPlay
from entity_env.check.outer_state import OuterState
from entity_env.check.plan import CheckPlan, random_answer
from entity_env.check.violations import LikelyMistake, Violations, difference, snapshot
from entity_env.core.episode import Episode
from entity_env.core.observation import Observation
from entity_env.core.seeding import EpisodeSeeds

_APART: Final = 2
"""Number of steps by which one copy lags the other."""
_SHARED: Final = "shared by the copies"
_LEAVE: Final = (
    "; act raises GameExit in a suspended game that is closed: let it pass, and let finally blocks "
    "only clean up"
)
_CAUGHT: Final = (
    "play caught GameExit, which act raises in a suspended game that is closed, and asked again: "
    "around act, catch Exception, not BaseException, and not everything (except:)"
)
_STAGE: Final = "playing two copies in turn"


def suspended_violations(direct: DirectPlay, plan: CheckPlan, outer: OuterState) -> Violations:
    """Differences from `direct` when two suspended copies play the same episodes in turn.

    Args:
        plan: the part of `direct` to play.

    Returns:
        At most one difference or error of the play, and errors raised when the copies are closed
        where they wait; the list of `direct` is unchanged.
    """
    plan = replace(plan, violations=Violations(plan.game.name))
    copies = [_Copy(plan, direct, outer) for _ in range(2)]
    num_steps = len(direct.trace)
    if plan.num_answers is not None:
        num_steps = min(num_steps, plan.num_answers + 1)
    try:
        for step in range(num_steps + _APART):
            for copy in copies[: 1 if step < _APART else 2]:
                if not (copy.is_done or len(plan.violations)):
                    copy.advance()
    finally:
        for copy in copies:
            copy.close()
    return plan.violations


class _Copy:
    """One of the copies; each observation is compared with the direct run's."""

    def __init__(self, plan: CheckPlan, direct: DirectPlay, outer: OuterState) -> None:
        self._plan = plan
        self._outer = outer
        self._traces = direct.traces
        self._rngs = plan.rngs()
        self._num_seen = [0] * plan.game.num_agents
        self._runner = GameRunner(plan.game, on_end=self._ended)
        self._has_begun = False

    @property
    def is_done(self) -> bool:
        seen = zip(self._num_seen, self._traces, strict=True)
        return all(number >= len(trace) for number, trace in seen)

    def advance(self) -> None:
        """Starts the game, or answers the waiting agents; runs until agents wait again."""
        self._plan.on_step(_STAGE)
        with self._playing("play", self._hint):
            if not self._has_begun:
                self._has_begun = True
                self._runner.restart(EpisodeSeeds(self._plan.seed))
                return
            # All observations are read before the first answer, as in a batch.
            answers = [(agent, self._answer(agent)) for agent in self._runner.waiting]
            if len(self._plan.violations):
                return
            for agent, answer in answers:
                agent.give(answer)
            self._runner.resume()
            self._runner.require_waiting()

    def close(self) -> None:
        """Raises `GameExit` in the copy where it waits."""
        with self._playing("play, closed while it was suspended,", lambda error: _LEAVE):
            self._runner.close()
        # The agents of concurrent tasks each leave once.
        if self._runner.num_swallowed > self._plan.game.num_agents:
            self._plan.violations.place = ""
            self._plan.violations.extend([LikelyMistake(_CAUGHT)])

    @contextmanager
    def _playing(self, call: str, hint: Callable[[BaseException], str]) -> Iterator[None]:
        """Times the game; adds a violation for what it raises."""
        self._plan.timeout.start()
        self._plan.violations.place = f"two copies in turn, as in training: {self._place}"
        try:
            with self._plan.violations.of_game(call, hint):
                yield
        finally:
            self._plan.timeout.stop()

    def _hint(self, error: BaseException) -> str:
        notes = notes_of(error)
        if notes:
            return "".join(f"; {note}" for note in notes)
        return f", and one copy alone does not{self._outer.known_cause(_SHARED)}"

    @property
    def _place(self) -> str:
        seen = zip(self._num_seen, self._traces, strict=True)
        places = [trace[number - 1][0] for number, trace in seen if 0 < number <= len(trace)]
        return places[0] if places else "at the start"

    def _answer(self, agent: TrainAgent) -> object:
        obs = agent.obs or Obs()
        observation = self._compared(agent, obs, agent.kinds)
        if not agent.is_playing:
            agent.is_playing = True
            agent.first_score = obs.score
        agent.last_score = obs.score
        rng = self._rngs[agent.agent_id]
        return random_answer(observation, agent.kinds, obs, self._plan.game.schema, rng)

    def _ended(self, agent: TrainAgent, obs: Obs, episode: Episode) -> None:
        self._compared(agent, obs, (), episode)

    def _compared(
        self,
        agent: TrainAgent,
        obs: Obs,
        kinds: Sequence[ActionType[Any]],
        episode: Episode | None = None,
    ) -> Observation:
        game = self._plan.game
        observation = to_observation(
            obs,
            kinds,
            game.schema,
            reward=agent.reward_of(obs),
            terminated=episode is not None and episode.terminated,
            truncated=episode is not None and episode.truncated,
        )
        number, trace = self._num_seen[agent.agent_id], self._traces[agent.agent_id]
        self._num_seen[agent.agent_id] += 1
        if number < len(trace) and not len(self._plan.violations):
            place, alone = trace[number]
            if differs := difference(alone, snapshot(observation, game.obs_space())):
                self._plan.violations.place = f"two copies in turn, as in training: {place}"
                cause = self._outer.cause(_SHARED)
                self._plan.violations.add(f"they differ from one copy alone: {differs}{cause}")
        return observation
