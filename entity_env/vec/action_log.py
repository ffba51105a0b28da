"""`ActionLog`: the actions of the episodes that run in a `VecEnv`, from which replays are made."""

from __future__ import annotations

import logging
import random
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from entity_env.authoring.game import Game
from entity_env.authoring.local_run import Turn, Watch
from entity_env.core.episode import Episode
from entity_env.core.spaces import (
    ActionName,
    CategoricalActionSpace,
    ContinuousActionSpace,
    GlobalCategoricalActionSpace,
)
from entity_env.core.vec_obs import VecSelectEntityActionMask
from entity_env.errors import ReplayError, WorkerError
from entity_env.replay.divergence import Divergence, failure_of
from entity_env.replay.encoding import json_rows
from entity_env.replay.file import SUFFIX, Decision, End
from entity_env.replay.play_again import play_again
from entity_env.replay.replay import Replay
from entity_env.replay.writer import ReplayWriter, header_of
from entity_env.vec.step import PendingBatch

_logger = logging.getLogger(__name__)

EpisodeWatch: TypeAlias = Callable[[Sequence[Episode], Callable[[], Replay]], None]
"""Called when the episodes of all agents of a game have ended, with them and a function that makes
their replay, of actions alone; it can be called until this returns."""

_MAX_BYTES: Final = 1 << 28
"""Of actions in memory; the longest episodes are given up beyond."""
_ENTRY_BYTES: Final = 500
"""Of the objects around the arrays of a step, about."""
_MAX_FAILURES: Final = 100
"""Replays that one log writes: a game may fail again and again."""
_TIMEOUT_S: Final = 30.0
_RAISED: Final = "the game raised "
_OF_WORKER: Final = "worker "
"""How reasons of errors begin."""


class _Sent(NamedTuple):
    """Actions that were sent together, of all rows of some environments.

    `values` have one element per actor; `counts` are the actors of each row, None = one each.
    """

    envs: Sequence[range]
    values: Sequence[NDArray[Any]]
    counts: Sequence[NDArray[np.uint32] | None]

    @property
    def num_bytes(self) -> int:
        """Memory that they take, about."""
        arrays = [*self.values, *(counts for counts in self.counts if counts is not None)]
        return _ENTRY_BYTES + sum(array.nbytes for array in arrays)


class _Span(NamedTuple):
    """From which to before which `_Sent` the decisions of an agent's episode are."""

    first: int
    last: int
    episode: Episode | None = None


class ActionLog:
    """Keeps the actions of running episodes; makes replays of those that end or fail.

    Args:
        game: that runs.
        num_envs: number of its copies.
        step_timeout_s: of the game, when an episode that raised is played again.

    Raises:
        ReplayError: a setting of the game that a replay cannot keep.
    """

    def __init__(self, game: Game, num_envs: int, step_timeout_s: float | None) -> None:
        self.failures: Path | None = None
        """Folder for replays of episodes that failed; None = they are not written."""
        self.watches: list[EpisodeWatch] = []
        self.has_crashed = False
        """A game has hung in a worker, or taken it down."""
        self._game = game
        self._step_timeout_s = step_timeout_s or _TIMEOUT_S
        self._header = header_of(game, 0)
        self._num_agents = game.num_agents
        self._spaces = game.action_space()
        self._sent: deque[_Sent] = deque()
        self._num_removed = 0
        """Of `_sent`, from the left; what follows is numbered from there."""
        self._num_bytes = 0
        self._begin: NDArray[np.int64] = np.zeros((num_envs, game.num_agents), np.int64)
        """Of every environment and agent, the first `_sent` of its running episode."""
        self._over: dict[int, dict[int, dict[int, _Span]]] = {}
        """By environment and number, episodes of agents that have ended before others."""
        self._given_up: set[int] = set()
        """Environments of whose running episodes not all actions were kept."""
        self._num_failures = 0

    # ------------------------------------------------------------------ what a VecEnv tells

    def begin(self, env_ids: Sequence[int]) -> None:
        """Environments begin new episodes."""
        self._begin[env_ids] = self._end
        for env_id in env_ids if self._over or self._given_up else ():
            self._over.pop(env_id, None)
            self._given_up.discard(env_id)
        self._remove()

    def give_up_all(self) -> None:
        """Makes no replays of the episodes that run."""
        self._given_up.update(range(len(self._begin)))

    def add(self, batch: PendingBatch, values: Mapping[ActionName, NDArray[Any]]) -> None:
        """Copies actions for a batch that are about to be performed."""
        kept, counts = [], []
        for name, space in self._spaces.items():
            mask, chosen = batch.obs.action_masks[name], values[name]
            lengths = mask.actors.lengths
            if isinstance(mask, VecSelectEntityActionMask):
                first = mask.actees.offsets[mask.actors.row_index]
                kept.append(mask.actees.values[first + chosen].astype(np.int32))
            elif isinstance(space, ContinuousActionSpace):
                kept.append(np.array(chosen, dtype=np.float32))
            else:
                is_small = (
                    isinstance(space, GlobalCategoricalActionSpace | CategoricalActionSpace)
                    and len(space) <= 256
                )
                kept.append(chosen.astype(np.uint8 if is_small else np.int32))
            is_one = len(chosen) == len(lengths) and bool((lengths == 1).all())
            counts.append(None if is_one else lengths.astype(np.uint32))
        sent = _Sent(batch.envs, kept, counts)
        self._sent.append(sent)
        self._num_bytes += sent.num_bytes
        if self._num_bytes > _MAX_BYTES:
            self._give_up()

    def end(
        self, ended: Sequence[Episode], lost: Sequence[Episode], reasons: dict[int, str]
    ) -> None:
        """Episodes have ended, or were lost for these reasons, which are cleared."""
        if reasons:
            self.has_crashed |= any(each.startswith(_OF_WORKER) for each in reasons.values())
        if ended or lost:
            for env_id in dict.fromkeys(episode.env_id for episode in lost):
                mine = [episode for episode in lost if episode.env_id == env_id]
                self._lose(mine, reasons.get(env_id))
            for episode in ended:
                self._end_episode(episode)
            self._remove()
        reasons.clear()

    def fail(self, error: BaseException) -> None:
        """Writes the replay of an episode that failed, and names it in its error."""
        if not isinstance(error, WorkerError):
            return
        self.has_crashed |= error.reason.startswith(_OF_WORKER)
        if error.env_id is None or error.seed is None:
            return
        number_of = error.episode or 0
        # With step 0 it failed at its start: what was sent belongs to the episode before.
        spans = self._spans(error.env_id, number_of) if error.step else {}
        replay = self._replay(error.env_id, number_of, error.seed, spans)
        try:
            path, note = self._save_failure(replay, error.reason)
        except Exception as problem:
            error.add_note(f"its replay could not be written: {problem}")
            return
        if path is not None:
            error.name_replay(str(path))
        if note:
            error.add_note(note)

    # ------------------------------------------------------------------ episodes

    @property
    def _end(self) -> int:
        """Number of the next `_Sent`."""
        return self._num_removed + len(self._sent)

    def _end_episode(self, episode: Episode) -> None:
        """An agent's episode has ended; calls the watcher if it was the last one of its game."""
        env_id = episode.env_id
        begin = self._begin[env_id]
        span = _Span(int(begin[episode.agent_id]), self._end, episode)
        begin[episode.agent_id] = self._end
        by_number = self._over.setdefault(env_id, {})
        spans = by_number.setdefault(episode.number, {})
        spans[episode.agent_id] = span
        for earlier in [each for each in by_number if each < episode.number]:
            # An agent took no part in it: it will never be whole.
            for agent_id in set(range(self._num_agents)) - set(by_number.pop(earlier)):
                first = min(each.first for each in spans.values())
                begin[agent_id] = max(begin[agent_id], first)
        if len(spans) < self._num_agents:
            return
        del by_number[episode.number]
        if not by_number:
            del self._over[env_id]
        if env_id in self._given_up:
            self._given_up.discard(env_id)
        elif self.watches:
            of_agents = [spans[agent_id].episode for agent_id in range(self._num_agents)]
            make = partial(self._replay, env_id, episode.number, episode.seed, spans)
            for watch in self.watches:
                watch([one for one in of_agents if one is not None], make)

    def _lose(self, lost: Sequence[Episode], reason: str | None) -> None:
        """The episodes of an environment were lost; writes their replay if the game failed."""
        first = lost[0]
        spans = self._spans(first.env_id, first.number)
        has_actions = any(span.first < span.last for span in spans.values())
        if self.failures is not None and reason != "" and has_actions:
            replay = self._replay(first.env_id, first.number, first.seed, spans)
            try:
                path, note = self._save_failure(replay, reason)
            except Exception as problem:
                path, note = None, f"its replay could not be written: {problem}"
            place = f"env {first.env_id}, episode {first.number}"
            if path is not None:
                _logger.warning("%s failed; replay: %s", place, path)
            if note:
                _logger.warning("%s failed: %s", place, note)
        self.begin([first.env_id])

    def _spans(self, env_id: int, number_of: int) -> dict[int, _Span]:
        """Those of all agents, of an episode that some of them may have ended."""
        begin = self._begin[env_id].tolist()
        running = {agent_id: _Span(first, self._end) for agent_id, first in enumerate(begin)}
        return running | self._over.get(env_id, {}).get(number_of, {})

    # ------------------------------------------------------------------ replays

    def _replay(self, env_id: int, number_of: int, seed: int, spans: Mapping[int, _Span]) -> Replay:
        """A replay of actions alone."""
        run = {"episode": number_of, "env": env_id}
        header = replace(self._header, episode_seed=seed, run=run)
        lines: list[Decision] = []
        steps = dict.fromkeys(spans, 0)
        for agent_id, actions in self._decisions(env_id, spans):
            lines.append(Decision(agent_id, steps[agent_id], actions))
            steps[agent_id] += 1
        for agent_id, span in spans.items():
            one = span.episode
            if one is not None:
                lines.append(Decision(agent_id, steps[agent_id], end=End.of(one)))
        return Replay(header, lines, name=f"env {env_id}, episode {number_of}")

    def _decisions(
        self, env_id: int, spans: Mapping[int, _Span]
    ) -> Iterator[tuple[int, dict[ActionName, Any]]]:
        """Agents and their actions, in the order in which they were sent."""
        if not spans:
            return
        first = min(span.first for span in spans.values())
        last = max(span.last for span in spans.values())
        part = islice(self._sent, first - self._num_removed, last - self._num_removed)
        for index, sent in enumerate(part, first):
            place = _place_of(env_id, sent.envs)
            for agent_id, span in spans.items():
                if place is not None and span.first <= index < span.last:
                    actions = self._actions_of(sent, place * self._num_agents + agent_id)
                    if actions:
                        yield agent_id, actions

    def _actions_of(self, sent: _Sent, row: int) -> dict[ActionName, Any]:
        """The actions of a row as JSON; those without actors, which may not be asked, are left
        out."""
        actions: dict[ActionName, Any] = {}
        for (name, space), values, counts in zip(
            self._spaces.items(), sent.values, sent.counts, strict=True
        ):
            first, count = row, 1
            if counts is not None:
                first, count = int(counts[:row].sum()), int(counts[row])
            if not count:
                continue
            mine = values[first : first + count]
            if isinstance(space, GlobalCategoricalActionSpace):
                actions[name] = int(mine[0])
            elif isinstance(space, ContinuousActionSpace):
                actions[name] = json_rows(mine)
            else:
                actions[name] = mine.tolist()
        return actions

    def _save_failure(self, replay: Replay, reason: str | None) -> tuple[Path | None, str]:
        """Writes the replay of a failure; returns its file and a note, if there is one."""
        folder = self.failures
        env_id = replay.header.run["env"]
        if folder is None:
            return None, ""
        if env_id in self._given_up:
            return None, "not all actions of the episode were kept: it was too long, or ran before"
        if self._num_failures >= _MAX_FAILURES:
            self._num_failures += 1
            is_first = self._num_failures == _MAX_FAILURES + 1
            return None, f"{_MAX_FAILURES} replays are in {folder}: no more" if is_first else ""
        error = WorkerError(_RAISED.rstrip() if reason is None else reason)
        replay = Replay(replay.header, replay.lines, failure=failure_of(error))
        note = ""
        # One that hung or died would do so here: it must not be played again.
        if reason is None or (reason.startswith(_RAISED) and _RAISED + "MemoryError" not in reason):
            replay, note = self._fail_again(replay, is_known=reason is not None)
        path = save_failure(replay, folder)
        self._num_failures += 1
        return path, note

    def _fail_again(self, replay: Replay, *, is_known: bool) -> tuple[Replay, str]:
        """With what was seen, if it fails again; and a note if it does not."""
        seen, found = played_again(replay, self._game, self._step_timeout_s)
        if not is_known and seen.failure and seen.num_decisions >= replay.num_decisions:
            return seen, ""
        if found is not None:
            return replay, f"played again, the episode does not fail like this: {found}"
        return seen, ""

    # ------------------------------------------------------------------ memory

    def _remove(self) -> None:
        """Frees what no episode needs any more."""
        first = int(self._begin.min())
        for by_number in self._over.values():
            first = min([first, *(s.first for spans in by_number.values() for s in spans.values())])
        while self._num_removed < first:
            self._num_bytes -= self._sent.popleft().num_bytes
            self._num_removed += 1

    def _give_up(self) -> None:
        """Frees the longest episodes, whose replays would fill the memory."""
        while self._sent and self._num_bytes > _MAX_BYTES // 2:
            longest = int(self._begin.argmin()) // self._num_agents
            if not self._given_up:
                _logger.warning(
                    "env %d: its episode is too long for its actions to be kept", longest
                )
            self.begin([longest])
            self._given_up.add(longest)


def _place_of(env_id: int, envs: Sequence[range]) -> int | None:
    """Position of an environment among those of a batch; None if it is not there."""
    before = 0
    for part in envs:
        if env_id in part:
            return before + env_id - part.start
        before += len(part)
    return None


# ---------------------------------------------------------------------- files


def played_again(
    replay: Replay, game: Game, step_timeout_s: float | None = _TIMEOUT_S
) -> tuple[Replay, Divergence | None]:
    """Plays a replay of actions alone again, in this process.

    The random states of `random` and `numpy.random` stay as they are.

    Args:
        replay: to play.
        game: of the replay.
        step_timeout_s: as for `Game.run`.

    Returns:
        The replay with checksums and what was seen, as far as it could be played; and the first
        difference, None if there is none.
    """
    writer = ReplayWriter()
    with same_random_states():
        found, _ = play_again(replay, game, watch=writer, step_timeout_s=step_timeout_s)
    if not writer.replays:
        return replay, found
    seen = writer.replays[0]
    return Replay(replay.header, seen.lines, failure=seen.failure, name=replay.name), found


@contextmanager
def same_random_states() -> Iterator[None]:
    """Restores the random states that games may share."""
    states = random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])


def save_failure(replay: Replay, folder: Path) -> Path:
    """Writes the replay of a failure to a new file of a folder; returns its path.

    Raises:
        ReplayError: it cannot be written.
    """
    run = replay.header.run
    name = re.sub(r"[^\w.-]", "_", replay.header.game)
    name += "".join(f"-{key}{run[key]}" for key in ("env", "episode") if key in run)
    path = folder / f"{name}{SUFFIX}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        number_of = 1
        while not _is_new(path):
            number_of += 1
            path = folder / f"{name}-{number_of}{SUFFIX}"
    except (OSError, ValueError) as error:
        raise ReplayError(f"cannot write {path}: {error}") from error
    try:
        replay.save(path)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return path


def _is_new(path: Path) -> bool:
    """Makes an empty file, which no other process takes then; False if there is one."""
    try:
        path.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


class FailureWriter(ReplayWriter):
    """Watches `Game.run`, and writes a replay of the episode that fails to a folder.

    Args:
        folder: see `save_failure`.
        watch: is called, too.
    """

    def __init__(self, folder: Path, watch: Watch) -> None:
        super().__init__(see=False, watch=watch)
        self._folder = folder

    def __call__(self, turn: Turn) -> None:
        super().__call__(turn)
        self.replays.clear()

    def end_run(self, error: BaseException | None) -> None:
        super().end_run(error)
        for replay in self.replays:
            if error is not None and replay.failure:
                try:
                    path = save_failure(replay, self._folder)
                except Exception as problem:
                    error.add_note(f"its replay could not be written: {problem}")
                    continue
                error.add_note(f"replay: {path}; --debug -1 stops just before it")
