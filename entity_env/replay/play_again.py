"""Plays a replay again in its game, and compares every observation."""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Protocol

from entity_env.agents.policy_agent import PolicyAgent
from entity_env.authoring.agent import Agent
from entity_env.authoring.game import Game, RunWatcher
from entity_env.authoring.game_traceback import is_a
from entity_env.authoring.local_run import AgentRun, RunLimits, Turn, Watch
from entity_env.core.action_request import Question
from entity_env.core.episode import Episode
from entity_env.core.observation import Action, Observation
from entity_env.core.seeding import EpisodeSeeds
from entity_env.core.spaces import ActionName, Spaces
from entity_env.errors import ReplayError, SchemaError, UsageError, shown
from entity_env.lazy_imports import np
from entity_env.replay.divergence import (
    Divergence,
    at_line,
    end_divergence,
    failure_of,
    observation_divergence,
    schema_divergence,
)
from entity_env.replay.encoding import actions_from_json, checksum
from entity_env.replay.file import Decision, ReplayHeader


class RecordedEpisode(Protocol):
    """The contents of a `Replay`."""

    header: ReplayHeader
    lines: Sequence[Decision]
    failure: str
    name: str

    @property
    def spaces(self) -> Spaces:
        """Observation space and action space."""

    @property
    def num_decisions(self) -> int:
        """Decisions of all agents together."""


_HANGS: Final = "hangs"
_TIMEOUT: Final = re.compile(r"hangs: no answer for (\d{1,5}(?:\.\d{1,9})?) s")
"""The failure of a game that hangs, with its step timeout in seconds."""


class Script:
    """The decisions of a replay, for the agents that repeat them; arguments as for `play_again`."""

    def __init__(
        self, replay: RecordedEpisode, until: int | None = None, *, is_compared: bool = True
    ) -> None:
        self.divergence: Divergence | None = None
        self.num_played = 0
        """Number of decisions repeated so far."""
        self.until = replay.num_decisions if until is None else until
        self._spaces = replay.spaces
        self._is_compared = is_compared
        self._lines = replay.lines
        self._has_checksums = any(line.checksum is not None for line in replay.lines)
        self._left: list[list[int]] = [[] for _ in range(replay.header.num_agents)]
        """Per agent, indices of its remaining lines, last first."""
        for i in reversed(range(len(self._lines))):
            self._left[self._lines[i].agent_id].append(i)
        self._order = [line.agent_id for line in self._lines if line.end is None]
        self._last_score: dict[int, float] = {}
        self.has_left = False
        """Whether an agent has left, for example because the replay has no more lines for it."""

    @property
    def num_decisions(self) -> int:
        return len(self._order)

    @property
    def is_over(self) -> bool:
        return self.num_played >= self.until

    def decide(
        self, agent_id: int, observation: Observation, asked: Sequence[Question]
    ) -> Mapping[ActionName, Action] | None:
        """The recorded actions for an observation; None = the replay ends here, or diverges."""
        line = self._next_line(agent_id)
        if self.divergence is None and self._is_left_out(line, observation):
            return actions_from_json({}, observation, self._spaces, asked)
        if self.divergence is not None or line is None:
            self.has_left = True
            return None
        if self._is_compared:
            self.divergence = self._compare_decision(line, observation)
        if self.divergence is not None or line.end is not None:
            return None
        try:
            actions = actions_from_json(line.actions, observation, self._spaces, asked)
        except SchemaError as error:
            text = f"a recorded action does not fit: {error}"
            self.divergence = at_line(line, "action", text)
            return None
        self._left[agent_id].pop()
        self.num_played += 1
        return actions

    def is_cut(self, agent_id: int) -> bool:
        """Whether the recorded run ended the episode when this agent was asked next."""
        line = self._next_line(agent_id)
        is_end = line is not None and line.end is not None and line.end.cut
        return is_end and self.divergence is None

    def end(self, turn: Turn, episode: Episode) -> None:
        line = self._next_line(turn.agent_id)
        if self.divergence is not None or not self._is_compared or line is None:
            return
        if line.end is None:
            left = sum(self._lines[i].end is None for i in self._left[turn.agent_id])
            text = f"the episode ends now, {left} more decisions were recorded"
            self.divergence = at_line(line, "end", text)
            return
        self._left[turn.agent_id].pop()
        self.divergence = self._compare(line, turn.observation) or end_divergence(
            line, line.end, episode
        )

    def returned(self) -> None:
        """Sets a divergence if lines are left when the game returns and no agent has left it."""
        line = self._first_left()
        if self.divergence is not None or not self._is_compared or self.has_left or line is None:
            return
        more = sum(self._lines[i].end is None for lines in self._left for i in lines)
        text = f"the game returns now, {more} more decisions were recorded"
        if not more:
            text = "the game returns now, the end of the episode was recorded"
        self.divergence = at_line(line, "end", text)

    def failed(self, error: BaseException, failure: str) -> None:
        now = failure_of(error).partition("\n")[0]
        if failure and self.is_over:
            is_same = failure.partition("\n")[0] == now
            if not is_same and not (failure.startswith(_HANGS) and now.startswith(_HANGS)):
                text = f"the game failed with {failure}, now it {_fails_with(now)}"
                self.divergence = Divergence("raises", text, was=failure, now=now)
            return
        line, text = self._first_left(), f"the game {_fails_with(now)}"
        if line is None:
            self.divergence = Divergence("raises", text, was=failure or None, now=now)
        else:
            self.divergence = at_line(line, "raises", text, now=now)

    def _is_left_out(self, line: Decision | None, observation: Observation) -> bool:
        """Whether a decision without actors is missing from a log of actions."""
        if self._has_checksums or observation.done or not observation.actions:
            return False
        if line is not None and line.end is None and all(v == [] for v in line.actions.values()):
            return False
        actors = (observation.actor_indices(name, self._spaces[0]) for name in observation.actions)
        return not any(map(len, actors))

    def _first_left(self) -> Decision | None:
        left = [lines[-1] for lines in self._left if lines]
        return self._lines[min(left)] if left else None

    def _next_line(self, agent_id: int) -> Decision | None:
        left = self._left[agent_id]
        return self._lines[left[-1]] if left else None

    def _compare_decision(self, line: Decision, observation: Observation) -> Divergence | None:
        if line.end is not None:
            return at_line(line, "end", "the episode ended here, the game continues now")
        expected = self._order[self.num_played]
        if line.checksum is not None and expected != line.agent_id:
            text = f"agent {expected} decided next, agent {line.agent_id} does now"
            return at_line(line, "agent", text, was=expected, now=line.agent_id)
        return self._compare(line, observation)

    def _compare(self, line: Decision, observation: Observation) -> Divergence | None:
        """The first difference in an observation, or None; always None without a checksum."""
        if line.checksum is None:
            return None
        last_score = self._last_score.get(line.agent_id)
        if line.score is not None:
            self._last_score[line.agent_id] = line.score
        now = checksum(observation, self._spaces[0])
        if now == line.checksum:
            return None
        return observation_divergence(line, observation, self._spaces, last_score, now)


def _fails_with(failure: str) -> str:
    return failure if failure.startswith(_HANGS) else f"raises {failure}"


class ReplayAgent(PolicyAgent):
    """Repeats the decisions of a replay, then leaves or lets another agent decide.

    Args:
        script: shared by all agents of the game.
        then: decides after the script, and watches until then; None = leave the game.
        debug: stop in the game, in `pdb`, after the script.
    """

    def __init__(
        self, script: Script, agent_id: int, then: Agent | None = None, *, debug: bool = False
    ) -> None:
        super().__init__()
        self._script = script
        self._agent_id = agent_id
        self._then = then
        self._debug = debug

    def join(self, run: AgentRun) -> None:
        super().join(run)
        if self._then is not None:
            self._then = self._then.take_seat(run)

    def act(self, obs: Any, /, *actions: Any) -> Any:  # noqa: ANN401 - see the overloads of Agent
        self._script.has_left |= self._run.is_stopped
        if self._script.is_over and self._then is not None:
            return self._then.act(obs, *actions)
        if self._script.is_cut(self._agent_id) and not self._run.is_stopped:
            self._run.cut(obs, actions)
            return None
        answer = super().act(obs, *actions)
        if self._debug and self._script.is_over and answer is not None:
            import pdb

            self._debug = False
            frame = sys._getframe(1)
            if frame.f_code is PolicyAgent.act_async.__code__ and frame.f_back is not None:
                frame = frame.f_back
            debugger = pdb.Pdb()
            debugger.set_trace(frame)
            # Stop at the next line of the game, not in functions that `act_async` calls first.
            # With tracing on, it would stop inside `set_next`.
            sys.settrace(None)
            debugger.set_next(frame)
            sys.settrace(debugger.trace_dispatch)
        return answer

    def decide(self, observation: Observation) -> Mapping[ActionName, Action] | None:
        if self._script.is_over and self._script.until < self._script.num_decisions:
            return None
        actions = self._script.decide(self._agent_id, observation, self.questions(observation))
        if actions is not None and isinstance(self._then, PolicyAgent):
            self._then.watch(observation)
        return actions


class _StopsHere(BaseException):
    """Ends the game; `except Exception` in it does not catch this."""


class _Observer:
    """Compares the ends of episodes, forwards calls to another watcher, and may stop the game."""

    def __init__(
        self, script: Script, watch: Watch | None, *, is_taken_over: bool, stops: bool
    ) -> None:
        self._script = script
        self._stops = stops
        self._watch = watch
        self._is_taken_over = is_taken_over

    def __call__(self, turn: Turn) -> None:
        if self._watch is not None:
            self._watch(turn)
        if turn.episode is not None and not (self._is_taken_over and self._script.is_over):
            self._script.end(turn, turn.episode)
        if self._stops and self._script.is_over:
            raise _StopsHere

    def begin_run(
        self, game: Game, agents: Sequence[Agent], seeds: EpisodeSeeds, episodes: int
    ) -> None:
        if isinstance(self._watch, RunWatcher):
            self._watch.begin_run(game, agents, seeds, episodes)

    def end_run(self, error: BaseException | None) -> None:
        if isinstance(self._watch, RunWatcher):
            self._watch.end_run(error)


def play_again(
    replay: RecordedEpisode,
    game: Game,
    *,
    until: int | None = None,
    then: Sequence[Agent] | None = None,
    watch: Watch | None = None,
    is_compared: bool = True,
    step_timeout_s: float | None = None,
    stops: bool = False,
    debug: bool = False,
    limits: RunLimits | None = None,
) -> tuple[Divergence | None, list[Episode]]:
    """Plays a replay in its game, from its seed.

    Args:
        game: the game with its default settings; the settings of the replay are applied.
        until: number of decisions to repeat; None = all.
        then: one agent per agent of the game, to decide after that; None = leave the game.
        watch, limits: as for `Game.play_episode`.
        is_compared: stop at the first difference.
        step_timeout_s: as for `Game.run`; None = without `debug`, the timeout in the failure of a
            replay that hangs; else no limit.
        stops: end the game before it receives the last of these decisions, which may crash it.
        debug: stop in `pdb` in the game after the last of these decisions.

    Returns:
        The first difference, or None; and the ended episodes, none if the game did not return.

    Raises:
        ReplayError: as `Replay.with_settings_of`.
        Exception: an error after the repeated decisions, if `then` is given.
    """
    game = game_with_settings(replay, game)
    if found := schema_divergence(replay.spaces, (game.obs_space(), game.action_space())):
        return found, []
    script = Script(replay, until, is_compared=is_compared)
    agents = _agents(game, script, then, debug=debug)
    observer = _Observer(script, watch, is_taken_over=then is not None, stops=stops)
    limit_s = _timeout_of(replay) if step_timeout_s is None and not debug else step_timeout_s
    seed = replay.header.episode_seed
    try:
        episodes = game.play_episode(
            *agents, seed=seed, watch=observer, step_timeout_s=limit_s, limits=limits
        )
    except _StopsHere:
        return script.divergence, []
    except Exception as error:
        is_of_others = then is not None and script.is_over and script.divergence is None
        if is_a(error, ReplayError) or is_of_others:
            raise
        if script.divergence is None:
            script.failed(error, replay.failure)
        return script.divergence, []
    is_all = then is None and script.until >= script.num_decisions
    if not replay.failure and (is_all or not script.is_over):
        script.returned()
    if script.divergence is None and replay.failure and then is None and until is None:
        script.divergence = _no_failure(replay)
    return script.divergence, episodes


def _agents(
    game: Game, script: Script, then: Sequence[Agent] | None, *, debug: bool
) -> list[ReplayAgent]:
    """One agent per agent of the game; see `play_again`."""
    return [
        ReplayAgent(script, i, None if then is None else then[i], debug=debug)
        for i in range(game.num_agents)
    ]


@contextmanager
def same_random_states() -> Iterator[None]:
    """Context that restores the global random states that games may share."""
    state = random.getstate()
    of_numpy = np.random.get_state() if "numpy" in sys.modules else None
    try:
        yield
    finally:
        random.setstate(state)
        if of_numpy is not None:
            np.random.set_state(of_numpy)


def _timeout_of(replay: RecordedEpisode) -> float | None:
    hangs = _TIMEOUT.fullmatch(replay.failure)
    return float(hangs[1]) or None if hangs else None


def _no_failure(replay: RecordedEpisode) -> Divergence:
    text = f"the game failed here with {replay.failure}, but now it does not"
    return Divergence("raises", text, was=replay.failure)


def game_with_settings(replay: RecordedEpisode, game: Game) -> Game:
    """The game with the settings of a replay.

    Raises:
        ReplayError: the game lacks such a setting, or has another number of agents; or a setting
            could name a file and differs from the given game's: see `Game.open_settings`.
    """
    defaults = {name: parameter.default for name, parameter in game.parameters.items()}
    current = {**defaults, **game.settings}
    for name, value in game.open_settings(replay.header.settings).items():
        if name not in current or current[name] != value:
            text = shown(value)
            raise ReplayError(
                f"{replay.name} was played with {name}={text}, which a file may not choose, as it "
                f"could be a path: if you trust it, give the setting yourself, --set {name}={text} "
                f"or game.with_settings({name}=...)"
            )
    try:
        game = game.with_settings(**replay.header.settings)
    except (UsageError, TypeError) as error:  # TypeError: a setting named "self"
        raise ReplayError(f"{replay.name} cannot be played: {error}") from error
    if game.num_agents != replay.header.num_agents:
        raise ReplayError(
            f"{replay.name} has {replay.header.num_agents} agents, but {game.name} is for "
            f"{game.num_agents}"
        )
    return game
