"""`DirectPlay`: plays a game by direct calls with random legal actions, and checks its output."""

from __future__ import annotations

import contextvars
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import islice
from time import perf_counter
from types import CodeType, FrameType
from typing import Any, Final, cast

import numpy as np

from entity_env.authoring.action_type import ActionKey, ActionType
from entity_env.authoring.agent import Agent, Pending
from entity_env.authoring.game_traceback import is_a, line_of_frame, text_of
from entity_env.authoring.local_run import end_episode, gain, still_played
from entity_env.authoring.obs import Obs, obs_problem
from entity_env.authoring.to_observation import to_observation
from entity_env.check.game_frames import ClockWatch, NoInput, ScoreVariables, frame_of_play
from entity_env.check.likely_mistakes import Score, unused_masks
from entity_env.check.outer_state import OuterState
from entity_env.check.plan import CheckPlan, has_choice, random_answer
from entity_env.check.violations import (
    LikelyMistake,
    Snapshot,
    final_violations,
    is_finite,
    obs_violations,
    observation_violations,
    snapshot,
)
from entity_env.core.observation import Observation
from entity_env.core.seeding import EpisodeSeeds
from entity_env.errors import GameExit, SchemaError

_MAX_IGNORED: Final = 20
"""Calls per agent allowed after `act` returned None: nested loops may call again before all end."""
_MAX_IDLE: Final = 100
"""Consecutive calls of `play` that may return without calling an agent."""
_MAX_SITES: Final = 16
"""Maximum number of call sites at which `act` returns None."""
_SITE_DEPTH: Final = 4
"""Number of stack frames that identify a call site."""
_BLANK_CUT: Final = (
    "truncated=True with an observation that shows nothing, so what the agent could still earn is "
    "unknown: give game_over the whole observation, as for act"
)
_MAY_LOSE: Final = (
    "game_over without an observation ends the episode with the score of the last act, so points "
    "that the last step earns are lost: agent.game_over(Obs(score)) counts them"
)
_MAX_EPISODES: Final = 1000
"""Episodes after which no more are played for a number of decisions."""
MIN_ANSWERS: Final = 2
"""Answers before the time limit applies: fewer show nothing."""


class DirectPlay:
    """Plays the episodes of a plan once.

    If no answer is possible, `act` returns None from then on: a game could swallow an exception. If
    the game then still continues, calls raise `GameExit`.

    Args:
        outer: detects global generators from which the game draws.
        stop_s: `perf_counter` time from which on `act` returns None.
        more_s: `perf_counter` time from which on no more than the episodes of the plan are played.
        clock: told when code of the game runs.
    """

    def __init__(
        self,
        plan: CheckPlan,
        stage: str,
        outer: OuterState | None = None,
        stop_s: float = float("inf"),
        more_s: float = float("inf"),
        clock: ClockWatch | None = None,
    ) -> None:
        self.trace: list[tuple[str, Snapshot]] = []
        """All observations, each with its place."""
        self.is_cut = False
        """Whether `stop_s` stopped it."""
        self.num_answered = 0
        self.num_choices = 0
        """Answers for which there was more than one legal choice."""
        self.loses = self.may_lose = ""
        """Sentences about points that `game_over` without an observation loses, or could lose."""
        self.num_changes = 0
        """Changes of scores."""
        self.went_on_at = ""
        """The first line that started an episode after `game_over` without reading `agent.seed`."""
        self.step_times_s: list[float] = []
        """Seconds that the game took between consecutive calls."""
        self._plan = plan
        self._game = plan.game
        self._violations = plan.violations
        self._stage = stage
        self._outer = outer
        self._stop_s, self._more_s = stop_s, more_s
        self._clock = clock
        self._seeds = EpisodeSeeds(plan.seed)
        self._agents = [_CheckAgent(self, i, rng) for i, rng in enumerate(plan.rngs())]
        self._num_answers = plan.num_answers
        self._is_closed = False
        self._num_ignored = 0
        self._is_seed_read = False
        """Whether the game has read `agent.seed` since `game_over`."""
        self._last_answer: object = None
        self._grown = ""
        """The mistake of an `Obs` that was shown twice."""
        self._left_at = ""
        """The line where `act` first returned None."""
        self._sites: dict[tuple[tuple[CodeType, int], ...], list[int]] = {}
        """Per call site: how many calls were answered before its first and its second call."""
        self._play_frame: FrameType | None = None
        self._returned_at = ""
        """The line where the last call of `play` ended."""
        self._thread = threading.current_thread()
        self._resumed_s = 0.0

    @property
    def repeatable(self) -> CheckPlan:
        """The plan of exactly the part that was played."""
        plan = replace(self._plan, decisions=0, changes=0)
        if self.is_cut:
            return replace(plan, num_answers=self.num_answered)
        numbers = [agent.num_episodes for agent in self._agents]
        played = min(numbers) if self._game.respawns else max(numbers)
        return replace(plan, episodes=max(played, plan.episodes))

    @property
    def traces(self) -> list[list[tuple[str, Snapshot]]]:
        return [agent.trace for agent in self._agents]

    @property
    def scores(self) -> list[list[Score]]:
        return [episode for agent in self._agents for episode in agent.scores if episode]

    @property
    def num_whole_episodes(self) -> int:
        return min(agent.num_episodes for agent in self._agents)

    def known_cause(self) -> str:
        """Why episodes with one seed may differ; see `OuterState.known_cause`."""
        if self.went_on_at:
            return (
                f"; act after game_over began another episode at {self.went_on_at}, without "
                "agent.seed: return after game_over, or begin each from agent.seed"
            )
        return "" if self._outer is None else self._outer.known_cause()

    @property
    def closings(self) -> list[int]:
        """Numbers of answers after which `act` must return None to do so once per call site.

        Where possible, this is at a site's second call, which is usually within an episode.
        """
        return sorted({counts[-1] for counts in self._sites.values()})

    def play(self, num_answers: int | None = None) -> None:
        if num_answers is not None:
            self._num_answers = num_answers
        num_idle = 0
        while not self._is_closed and num_idle < _MAX_IDLE:
            before = self._num_observed
            if not self._start():
                return
            left = [agent for agent in self._agents if agent.is_playing]
            if left and not self._is_closed:
                self._add_unfinished(left[0])
                return
            num_idle = 0 if self._num_observed > before else num_idle + 1
            if self._is_enough(max(agent.num_episodes for agent in self._agents)):
                return
        if not self._is_closed:
            self._add("play returns again and again without calling act")

    def seed_of(self, agent: _CheckAgent) -> int:
        return self._seeds[agent.num_episodes]

    def read_seed(self, agent: _CheckAgent) -> int:
        """`seed_of`, recorded as read by the game."""
        self._is_seed_read = True
        return self.seed_of(agent)

    @contextmanager
    def asked(self, frame: FrameType) -> Iterator[None]:
        """Stops the timeout during a call from this frame of the game."""
        if self._clock is not None:
            self._clock.stop()
        self.step_times_s.append(perf_counter() - self._resumed_s)
        self._plan.timeout.stop()
        self._violations.line = line_of_frame(frame)
        if self._play_frame is None:
            self._play_frame = frame_of_play(self._game, frame)
        if self._outer is not None:
            self._outer.look(self._violations.line)
        self._plan.on_step(self._stage)
        try:
            yield
        except GameExit:  # the game must return, and may hang instead
            self._plan.timeout.start()
            raise
        self._violations.line = ""
        self._plan.timeout.start()
        self._resumed_s = perf_counter()
        if self._clock is not None:
            self._clock.start()

    def answer(
        self, agent: _CheckAgent, obs: Obs, actions: tuple[ActionKey, ...], frame: FrameType
    ) -> object:
        if self._is_closed:
            self._ignored()
            return None
        self._at(agent)
        if not self._may_ask(agent, "an agent was asked"):
            self._close()
            return None
        if agent.is_awaited:
            self._violations.add("an agent was asked again before .get() of its last act_async")
        kinds = self._kinds(actions)
        if agent.num_steps >= self._plan.max_steps:
            begun = f" of an episode that act after game_over began at {agent.first_line}"
            self._violations.add(
                f"no game_over within {self._plan.max_steps} steps{begun * agent.has_ended}: end "
                "the episode, truncate it, or pass a larger max_steps (--max-steps)"
            )
            self._close()
            return None
        if not agent.is_playing:
            agent.first_line = self._violations.line
            if agent.has_ended and not self._is_seed_read and not self.went_on_at:
                self.went_on_at = self._violations.line
        observation = self._observe(agent, obs, kinds) if kinds else None
        if observation is None or self.num_answered == self._num_answers:
            self._close()
            return None
        if self.num_answered >= MIN_ANSWERS and perf_counter() > self._stop_s:
            self.is_cut = True
            self._close()
            return None
        self._violations.extend(unused_masks(obs, kinds))
        self._note_site(frame)
        agent.kinds = tuple(kinds)
        self.num_answered += 1
        agent.num_steps += 1
        self._last_answer = None
        self._note_reuse(agent, obs)
        self.num_choices += has_choice(observation, self._game.schema)
        try:
            self._last_answer = random_answer(observation, kinds, obs, self._game.schema, agent.rng)
        except SchemaError:  # already listed as a violation
            self._close()
        return self._last_answer

    def game_over(self, agent: _CheckAgent, obs: Obs | None, truncated: bool) -> None:
        """Ends an agent's episode; `act` returns None once all agents have played all episodes."""
        if self._is_closed:
            agent.is_playing = False
            self._ignored()
            return
        self._at(agent)
        if not self._may_ask(agent, "an agent was given game_over"):
            self._close()
            return
        if agent.is_awaited:
            self._violations.add("game_over came before .get() of the last act_async")
        if len(self._agents) == 1 and not agent.is_playing:
            before = f", after game_over at {agent.ended_at}: return after it" * agent.has_ended
            self._violations.add(f"game_over came before the first act of this episode{before}")
        if obs is None and self._play_frame is not None and agent.is_playing:
            lost = agent.score_variables.lost_points(self._play_frame, agent.last_score)
            where = f" ({self._violations.line})"
            self.may_lose = self.may_lose or f"{_MAY_LOSE}{where}"
            self.loses = self.loses or (lost and f"{self._violations.place}: {lost}{where}")
        final = Obs(agent.last_score) if obs is None else obs
        if self._observe(agent, final, (), truncated=truncated) is None:
            self._is_closed = True
        elif truncated:
            self._violations.extend(final_violations(final, agent.kinds, self._game.schema))
        if truncated and final.is_blank:
            self._violations.add(LikelyMistake(_BLANK_CUT))
        agent.num_episodes += 1
        agent.num_steps = 0
        agent.is_playing = False
        self._is_seed_read = False
        agent.has_ended, agent.ended_at = True, self._violations.line
        end_episode(agent, () if self._game.respawns else self._agents)
        if self._is_enough(self.num_whole_episodes):
            self._is_closed = True

    def _is_enough(self, num_episodes: int) -> bool:
        plan = self._plan
        return num_episodes >= plan.episodes and (
            self.num_answered >= plan.decisions
            or num_episodes >= _MAX_EPISODES
            or 0 < plan.changes <= self.num_changes
            or perf_counter() > self._more_s
        )

    @property
    def _num_observed(self) -> int:
        return sum(agent.num_observed for agent in self._agents)

    def _start(self) -> bool:
        """Calls `play` once; returns False if it failed or was abandoned.

        `play` runs in a greenlet, so a game that swallows every exception can be abandoned.
        """
        number = max(agent.num_episodes for agent in self._agents)
        for agent in self._agents:  # including agents that skipped the last episode
            agent.num_episodes = number
            agent.has_ended = False
        seed = self._seeds[number]
        self._violations.place = f"episode {number} (seed {seed}), step 0"
        agents = cast("Sequence[Agent]", self._agents)

        def play() -> None:
            if self._clock is not None:
                self._clock.start()
            try:
                with suppress(GameExit):
                    self._game.start(agents, seed)
            finally:
                if self._clock is not None:
                    self._clock.stop()

        # Imported late: all commands but this one work without greenlet.
        from entity_env.agents.channels.greenlet_channel import greenlet

        run = greenlet.greenlet(play)
        run.gr_context = contextvars.copy_context()
        self._hub = greenlet.getcurrent()
        self._player = run
        has_returned = False
        self._plan.timeout.start()
        self._resumed_s = perf_counter()
        stdin, sys.stdin = sys.stdin, NoInput()
        try:
            with self._violations.of_game("play", self._hint):
                run.switch()
                has_returned = run.dead
        finally:
            sys.stdin = stdin
            self._returned_at = line_of_frame(self._play_frame)  # a frame keeps its last line
            self._play_frame = None
            self._plan.timeout.stop()
            self._violations.line = ""
        return has_returned

    def _hint(self, error: BaseException) -> str:
        if not self._left_at:
            read = getattr(error, "obj", None) if is_a(error, AttributeError) else None
            last = self._last_answer
            if isinstance(read, list) and any(
                read is each for each in (last if isinstance(last, tuple) else [last])
            ):
                return "; the list is an answer of act, with one value per actor"
            if isinstance(last, list) and "values to unpack" in text_of(error):
                why = f"; {self._grown}" if self._grown else ": the observation had no actors"
                return (
                    f"; act returned a list of {len(last)}, one answer per actor of the "
                    f"observation{why * (bool(self._grown) or not last)}"
                )
            return ""
        return (
            f"; act had returned None before ({self._left_at}), as it does when the program closes "
            "the game: return then"
        )

    def _add_unfinished(self, agent: _CheckAgent) -> None:
        """Adds the violation that `play` returned during an agent's episode."""
        self._at(agent)
        self._violations.line = self._returned_at
        which = f" for agent {agent.agent_id}" if len(self._agents) > 1 else ""
        if agent.has_ended:
            self._violations.add(
                f"act after game_over began another episode at {agent.first_line}, which play left "
                f"without game_over{which}: return after game_over, or end that episode, too"
            )
        else:
            self._violations.add(
                f"play returned without game_over{which}: call it before every return"
            )
        self._violations.line = ""

    def _may_ask(self, agent: _CheckAgent, call: str) -> bool:
        """Whether a call is allowed; adds a violation in another thread, or if `agent.is_over`."""
        thread = threading.current_thread()
        if thread is not self._thread:
            self._violations.add(
                f"{call} in the thread {thread.name!r}, expected the thread that runs play: call "
                "act and game_over there; other threads can pass their results to it, for example "
                "through a queue.Queue"
            )
        elif agent.is_over:
            self._violations.add(still_played(call))
        return thread is self._thread and not agent.is_over

    def _observe(
        self,
        agent: _CheckAgent,
        obs: Obs,
        kinds: Sequence[ActionType[Any]],
        *,
        truncated: bool = False,
    ) -> Observation | None:
        """Checks and converts an `Obs`; None if it cannot be converted."""
        if problem := obs_problem(obs):
            self._violations.add(problem)
            return None
        found = self._violations.extend(obs_violations(obs, self._game.schema))
        if not is_finite(obs.score):
            found += self._violations.extend(
                [f"the score is {obs.score!r}, expected a finite number"]
            )
        is_first = not agent.is_playing
        reward = agent.reward_of(obs)
        if is_first:
            agent.scores.append([])
        elif agent.scores[-1][-1].value != agent.last_score:
            self.num_changes += 1
        if kinds and self._play_frame is not None:
            agent.score_variables.see(self._play_frame, agent.last_score)
        agent.scores[-1].append(
            Score(agent.last_score, self._violations.place, self._violations.line)
        )
        try:
            observation = to_observation(
                obs,
                kinds,
                self._game.schema,
                reward=reward,
                terminated=not kinds and not truncated,
                truncated=truncated,
            )
        except SchemaError as error:
            if not found:
                self._violations.add(str(error))
            return None
        spaces = self._game.obs_space(), self._game.action_space()
        found += self._violations.extend(
            observation_violations(observation, *spaces, is_first=is_first and bool(kinds))
        )
        if not found:
            seen = self._violations.place, snapshot(observation, spaces[0])
            self.trace.append(seen)
            agent.trace.append(seen)
        return observation

    def _kinds(self, actions: tuple[ActionKey, ...]) -> list[ActionType[Any]]:
        try:
            return list(self._game.schema.questions(actions))
        except SchemaError as error:
            self._violations.add(str(error))
            return []

    def _note_site(self, frame: FrameType) -> None:
        """Records the game's call site at which `act` is answered."""
        stack = islice(traceback.walk_stack(frame), 1, 1 + _SITE_DEPTH)  # without `act`
        site = tuple((each.f_code, line) for each, line in stack)
        counts = self._sites.get(site)
        if counts is None and len(self._sites) < _MAX_SITES:
            counts = self._sites.setdefault(site, [])
        if counts is not None and len(counts) < 2:
            counts.append(self.num_answered)

    def _note_reuse(self, agent: _CheckAgent, obs: Obs) -> None:
        """Finds an `Obs` to which the game keeps adding entities."""
        before, agent.last_obs = agent.last_obs, (obs, len(obs.groups))
        if before[0] is obs and before[1] < len(obs.groups):
            self._grown = (
                f"the Obs of the last act is shown again and still has its entities: it grew from "
                f"{before[1]} to {len(obs.groups)} groups; make a new Obs(score) for every act"
            )
            self._violations.extend([LikelyMistake(self._grown)])

    def _close(self) -> None:
        self._is_closed = True
        self._left_at = self._left_at or self._violations.line

    def _ignored(self) -> None:
        """Counts calls after `act` returned None; raises `GameExit` if there are too many.

        Abandons a game that swallows `GameExit`.
        """
        self._left_at = self._left_at or self._violations.line
        self._num_ignored += 1
        allowed = _MAX_IGNORED * len(self._agents)
        if self._num_ignored <= allowed:
            return
        self._add("play continues after act returned None: return from play")
        if self._num_ignored <= 2 * allowed:
            raise GameExit
        self._add("play swallows GameExit: catch Exception, not BaseException, around agent.act")
        if self._hub.getcurrent() is self._player:
            self._hub.switch()
        raise GameExit

    def _add(self, violation: str) -> None:
        self._violations.place = self._violations.line = ""
        self._violations.add(violation)

    def _at(self, agent: _CheckAgent) -> None:
        which = f", agent {agent.agent_id}" if len(self._agents) > 1 else ""
        self._violations.place = (
            f"episode {agent.num_episodes} (seed {self.seed_of(agent)}), "
            f"step {agent.num_steps}{which}"
        )


class _CheckAgent:
    """The methods of `Agent` that games use, with random legal answers."""

    def __init__(self, check: DirectPlay, agent_id: int, rng: np.random.Generator) -> None:
        self.agent_id = agent_id
        self.rng = rng
        self.trace: list[tuple[str, Snapshot]] = []
        self.scores: list[list[Score]] = []
        """One list per episode."""
        self.num_episodes = 0
        self.num_steps = 0
        self.num_observed = 0
        self.is_playing = False
        self.is_over = False
        """See `end_episode`."""
        self.is_awaited = False
        """Whether its last `act_async` still waits for `get`."""
        self.has_ended = False
        """Whether it has ended an episode since the last call of `play`."""
        self.ended_at = ""
        """The game's line of its last `game_over`."""
        self.first_line = ""
        """The game's line of the first request in this episode."""
        self.last_score = 0.0
        self.kinds: tuple[ActionType[Any], ...] = ()
        """The actions that it was asked for last."""
        self.last_obs: tuple[Obs | None, int] = None, 0
        """The last `Obs` of an `act`, and how many groups of entities it had."""
        self.score_variables = ScoreVariables()
        self._check = check

    @property
    def seed(self) -> int:
        return self._check.read_seed(self)

    def act(self, obs: Obs, /, *actions: ActionKey) -> object:
        self.num_observed += 1
        frame = sys._getframe()
        with self._check.asked(frame):
            return self._check.answer(self, obs, actions, frame)

    def act_async(self, obs: Obs, /, *actions: ActionKey) -> _Answer:
        answer = self.act(obs, *actions)
        self.is_awaited = True
        return _Answer(self, answer)

    def game_over(self, obs: Obs | None = None, *, truncated: bool = False) -> None:
        self.num_observed += 1
        with self._check.asked(sys._getframe()):
            self._check.game_over(self, obs, truncated)

    def close(self) -> None:
        pass

    def reward_of(self, obs: Obs) -> float:
        """Records the score of an observation; returns its change since the last observation.

        0 for the first observation of an episode, or if the score is not finite.
        """
        last_score = self.last_score if self.is_playing else None
        reward = gain(obs, last_score) if is_finite(obs.score) else 0.0
        self.is_playing = True
        self.last_score = obs.score if is_finite(obs.score) else self.last_score
        return reward


class _Answer(Pending[object]):
    def __init__(self, agent: _CheckAgent, answer: object) -> None:
        self._agent = agent
        self._answer = answer

    def get(self) -> object:
        self._agent.is_awaited = False
        return self._answer
