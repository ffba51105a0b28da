"""`TrainingReplays`: best and worst episodes of a training run, and evaluation episodes."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from time import monotonic
from typing import Final, Protocol

from entity_env.agents.training.callbacks import Callback, TrainState
from entity_env.authoring.agent import Agent
from entity_env.authoring.game import Game
from entity_env.authoring.local_run import Turn
from entity_env.core.episode import Episode
from entity_env.core.seeding import EVALUATED_ENV, EpisodeSeeds
from entity_env.core.validation import checked_count
from entity_env.errors import ReplayError, UsageError
from entity_env.replay.action_log import EpisodeWatch
from entity_env.replay.divergence import failure_of
from entity_env.replay.file import SUFFIX
from entity_env.replay.play_again import same_random_states
from entity_env.replay.replay import Replay
from entity_env.replay.writer import STEP_TIMEOUT_S, ReplayWriter, played_again

_logger = logging.getLogger(__name__)

_SIGNS: Final = {"best": 1, "worst": -1}
KINDS: Final = tuple(_SIGNS)
_TIME_SHARE: Final = 0.01
"""Share of the run's time for playing again; when it is used up, replays wait, at most until the
end."""
_MAX_DECISIONS: Final = 10_000
_MAX_SECONDS: Final = 10.0
"""An evaluation episode is left after this many seconds, because it may never end."""


class WatchedEnvs(Protocol):
    """Environments whose episodes can be watched, such as a `VecEnv`."""

    @property
    def has_crashed(self) -> bool:
        """Whether a game has hung in a worker or crashed it."""

    def watch_episodes(self, watch: EpisodeWatch) -> None:
        """Calls a function for every episode that ends."""


class TrainingReplays(Callback):
    """Keeps replays of a training run; a callback of `train`.

    `best.replay` and `worst.replay` are the episodes with the highest and lowest reward of any
    agent among those that ended in `vec`; of equal ones, the first. Episodes without a decision, or
    so long that their actions were dropped, do not count. The replays are played again in this
    process, between updates, to add observations. Once that has taken 1 % of the run's time, the
    next one waits, at most until the run ends. If a game does not reproduce such an episode, only
    its actions are stored, and a warning names the first difference.

    Files such as `step-000120000.replay` are evaluation episodes, played at `moments` steps from
    the first to the last (1 = only the last), always from the same start, which does not occur in
    training. Actions are sampled as in training, each time with the same seed. After 10,000
    decisions or 10 s, an evaluation episode is left unfinished.

    Once a worker of `vec` has died or hung, the game is no longer played in this process, and only
    actions are stored.

    The network and all random states of training are unaffected. A replay that cannot be made or
    written causes a warning and never ends the run. A resumed run continues with the files in the
    folder.

    Args:
        game: the game used in training.
        folder: folder for the files; they replace files of an earlier run with the same names.
        vec: `VecEnv` of that game; None = no best and worst episodes.
        keep: "best", "worst", or both.
        moments: number of evaluation episodes; 0 = none.
        seed: seed of the evaluation episodes.

    Raises:
        UsageError: another name in `keep`, a negative number, or a `vec` that does not run a
            `Game`.
        ReplayError: a setting of the game that a replay cannot store.
    """

    def __init__(
        self,
        game: Game,
        folder: str | Path,
        vec: WatchedEnvs | None = None,
        *,
        keep: Sequence[str] = KINDS,
        moments: int = 0,
        seed: int = 0,
    ) -> None:
        for name in keep:
            if name not in KINDS:
                raise UsageError(f"keep must contain only {' and '.join(KINDS)}, got {name!r}")
        self.folder = Path(folder)
        self._game = game
        self._vec = vec
        self._num_moments = checked_count("moments", moments, 0)
        self._seed = seed
        self._episode_seed = EpisodeSeeds(seed, EVALUATED_ENV)[0]
        names = [name for name in KINDS if name in keep and vec is not None]
        self._extremes = [_Extreme(name, _SIGNS[name]) for name in names]
        self._step = 0
        self._last_moment = -1
        """Schedule step of the last evaluation episode."""
        self._began = 0.0
        self._spent_s = 0.0
        """Seconds spent playing again."""
        self._told: set[str] = set()
        if self._extremes and vec is not None:
            vec.watch_episodes(self._ended)

    def on_start(self, state: TrainState) -> None:
        self._began = monotonic()
        self._step = state.progress.step
        if state.is_resumed:
            self._resume()
        self.on_update(state)

    def on_update(self, state: TrainState) -> None:
        self._step, total = state.progress.step, state.progress.total
        if self._is_due(state.progress.scheduled_step, total) and self._may_play:
            self._last_moment = state.progress.scheduled_step
            self._evaluate(max(9, len(str(total))), state.make_agent)
        for extreme in self._extremes:
            if self._spent_s <= _TIME_SHARE * (monotonic() - self._began):
                self._write(extreme)

    @property
    def _may_play(self) -> bool:
        return self._vec is None or not self._vec.has_crashed

    def on_end(self, state: TrainState) -> None:
        for extreme in self._extremes:
            self._write(extreme)

    def _resume(self) -> None:
        for extreme in self._extremes:
            path = self.folder / f"{extreme.name}{SUFFIX}"
            if path.exists():
                try:
                    extreme.reward = extreme.value_of(Replay.load(path).rewards)
                except ReplayError as error:
                    self._tell(f"{path} will be replaced by an episode of the resumed run: {error}")
        for path in self.folder.glob(f"step-*{SUFFIX}"):
            found = re.fullmatch(r"step-(\d+)", path.stem)
            if found and int(found[1]) <= self._step:
                self._last_moment = max(self._last_moment, int(found[1]))

    # ------------------------------------------------------------------ best and worst

    def _ended(self, episodes: Sequence[Episode], replay: Callable[[], Replay]) -> None:
        for extreme in self._extremes:
            reward = extreme.value_of([episode.reward for episode in episodes])
            if reward > extreme.reward and any(episode.length for episode in episodes):
                extreme.reward = reward
                extreme.replay = replay()
                extreme.step = self._step

    def _write(self, extreme: _Extreme) -> None:
        replay, extreme.replay = extreme.replay, None
        if replay is None:
            return
        begin = monotonic()
        try:
            found = None
            if self._may_play:
                seen, found = played_again(replay, self._game)
                replay = seen if found is None else replay
            if found is not None:
                self._tell(
                    f"{self._game.name} does not repeat its episodes from their seeds and "
                    f"actions; their replays have only actions: {found}"
                )
            self._save(replay, extreme.name, extreme.step)
        except Exception as error:
            self._tell(f"the {extreme.name} episode could not be saved: {error}")
        self._spent_s += monotonic() - begin

    # ------------------------------------------------------------------ moments

    def _is_due(self, reached: int, total: int) -> bool:
        gaps = max(self._num_moments - 1, 1)
        moments = [total * i // gaps for i in range(self._num_moments)]
        if self._num_moments == 1:
            moments = [total]
        return any(self._last_moment < moment <= reached for moment in moments)

    def _evaluate(self, num_digits: int, make_agent: Callable[[int], Agent]) -> None:
        writer = _evaluation_writer()
        try:
            with same_random_states():
                agents = [make_agent(self._seed + i) for i in range(self._game.num_agents)]
                try:
                    _play(self._game, agents, self._episode_seed, writer)
                except Exception as error:
                    self._tell(f"an evaluation episode failed: {failure_of(error)}")
            if writer.replays:
                self._save(writer.replays[0], f"step-{self._step:0{num_digits}}", self._step)
        except Exception as error:
            self._tell(f"an evaluation episode could not be saved: {error}")

    def _save(self, replay: Replay, name: str, step: int) -> None:
        agents = [{"name": f"step {step}"}] * self._game.num_agents
        header = replace(replay.header, agents=agents)
        kept = Replay(header, replay.lines, failure=replay.failure)
        kept.save(self.folder / f"{name}{SUFFIX}")

    def _tell(self, warning: str) -> None:
        kind = warning.partition(":")[0]
        if kind not in self._told:
            self._told.add(kind)
            _logger.warning("%s", warning)


def keep_episode(game: Game, agent: Agent, seed: int, path: Path, max_decisions: int) -> bool:
    """Writes a replay of a single-agent episode, left unfinished after `max_decisions` or 10 s.

    Returns whether it was written; logs a warning on failure.
    """
    writer = _evaluation_writer(max_decisions)
    try:
        _play(game, [agent], seed, writer)
        if not writer.replays:
            return False
        writer.replays[0].save(path)
    except Exception as error:
        _logger.warning("no replay of an evaluation episode could be saved: %s", failure_of(error))
        return False
    return True


class _Enough(BaseException):
    """Leaves an evaluation episode; `except Exception` in a game does not catch it."""


def _evaluation_writer(max_decisions: int | None = None) -> ReplayWriter:
    numbers, until = count(1), monotonic() + _MAX_SECONDS
    most = max_decisions or _MAX_DECISIONS

    def leave(turn: Turn) -> None:
        if turn.episode is None and (next(numbers) >= most or monotonic() > until):
            raise _Enough

    return ReplayWriter(think=True, watch=leave)


def _play(game: Game, agents: Sequence[Agent], seed: int, writer: ReplayWriter) -> None:
    with suppress(_Enough):
        game.play_episode(*agents, seed=seed, watch=writer, step_timeout_s=STEP_TIMEOUT_S)


@dataclass
class _Extreme:
    """The best or worst episode so far: the highest reward times `sign`."""

    name: str
    sign: int
    reward: float = float("-inf")
    """`value_of` the episode."""
    replay: Replay | None = None
    """None once written."""
    step: int = 0

    def value_of(self, rewards: Sequence[float | None]) -> float:
        """Rank of an episode; the highest is kept."""
        known = [self.sign * reward for reward in rewards if reward is not None]
        return max(known, default=float("-inf"))
