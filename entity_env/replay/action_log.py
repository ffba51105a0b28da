"""`ActionLog`: actions of the running episodes of a `VecEnv`, from which replays are made."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from entity_env.authoring.game import Game
from entity_env.authoring.game_traceback import add_note
from entity_env.core.episode import Episode
from entity_env.core.ragged import RaggedArray
from entity_env.core.spaces import (
    ActionName,
    CategoricalActionSpace,
    ContinuousActionSpace,
    GlobalCategoricalActionSpace,
)
from entity_env.core.vec_obs import VecActionMask, VecSelectEntityActionMask
from entity_env.errors import WorkerError
from entity_env.replay.divergence import failure_of
from entity_env.replay.encoding import json_rows
from entity_env.replay.failures import FailureFolder
from entity_env.replay.file import Decision, End
from entity_env.replay.replay import Replay
from entity_env.replay.writer import STEP_TIMEOUT_S, header_of, played_again

_logger = logging.getLogger(__name__)

EpisodeWatch: TypeAlias = Callable[[Sequence[Episode], Callable[[], Replay]], None]
"""Called when the episodes of all agents of a game have ended, with the episodes and a function
that makes their replay (actions only). The function is valid until this call returns."""

_MAX_BYTES: Final = 1 << 28
"""Maximum memory for actions; beyond it, the longest episodes are dropped."""
_ENTRY_BYTES: Final = 500
"""Approximate size of the objects around a step's arrays."""
_RAISED: Final = "the game raised "
_OF_WORKER: Final = "worker "
"""Prefixes of error reasons."""

_Column: TypeAlias = NDArray[Any] | RaggedArray[Any]
"""Values of one action by row: an array if every row has one actor."""


class _Sent(NamedTuple):
    """Actions sent together, for all rows of some environments."""

    envs: Sequence[range]
    columns: Sequence[_Column]

    @property
    def num_bytes(self) -> int:
        """Approximate memory, including cached `offsets` of ragged arrays."""
        sizes = (
            each.nbytes
            if isinstance(each, np.ndarray)
            else each.values.nbytes + 2 * each.lengths.nbytes
            for each in self.columns
        )
        return _ENTRY_BYTES + sum(sizes)


class _Span(NamedTuple):
    """Range of `_Sent` indices of one agent's episode; `last` is exclusive."""

    first: int
    last: int
    episode: Episode | None = None


class ActionLog:
    """Keeps the actions of running episodes; makes replays of episodes that end or fail.

    Args:
        step_timeout_s: the game's timeout when a failed episode is played again; None =
            `STEP_TIMEOUT_S`.
        failures: folder for replays of failed episodes; None = they are not written.

    Raises:
        ReplayError: a setting of the game that a replay cannot store.
    """

    def __init__(
        self, game: Game, num_envs: int, step_timeout_s: float | None, failures: Path | None = None
    ) -> None:
        self.watches: list[EpisodeWatch] = []
        self.has_crashed = False
        """Whether a game has hung in a worker or crashed it."""
        self._failures = None if failures is None else FailureFolder(failures)
        self._game = game
        self._step_timeout_s = step_timeout_s or STEP_TIMEOUT_S
        self._header = header_of(game)
        self._num_agents = game.num_agents
        self._spaces = game.action_space()
        self._sent: deque[_Sent] = deque()
        self._num_removed = 0
        """Entries removed from the left of `_sent`; `_sent` indices include them."""
        self._num_bytes = 0
        self._begin: NDArray[np.int64] = np.zeros((num_envs, game.num_agents), np.int64)
        """By environment and agent, first `_sent` index of the running episode."""
        self._over: dict[int, dict[int, dict[int, _Span]]] = {}
        """By environment, episode number and agent: episodes that ended while other agents play."""
        self._given_up: set[int] = set()
        """Environments whose running episodes lack actions."""

    # ------------------------------------------------------------------ called by a VecEnv

    def begin(self, env_ids: Sequence[int]) -> None:
        self._begin[env_ids] = self._end
        for env_id in env_ids if self._over or self._given_up else ():
            self._over.pop(env_id, None)
            self._given_up.discard(env_id)
        self._remove()

    def give_up_all(self) -> None:
        """Makes no replays of the episodes that are running now."""
        self._given_up.update(range(len(self._begin)))

    def add(
        self,
        envs: Sequence[range],
        masks: Mapping[ActionName, VecActionMask],
        values: Mapping[ActionName, NDArray[Any]],
    ) -> None:
        """Copies the actions of a batch before they are performed.

        Args:
            envs: the environments of the batch, in order, with one row per agent.
            values: per action, one value per actor.
        """
        columns: list[_Column] = []
        for name, space in self._spaces.items():
            mask, chosen = masks[name], values[name]
            lengths = mask.actors.lengths
            if isinstance(mask, VecSelectEntityActionMask):
                first = mask.actees.offsets[mask.actors.row_index]
                kept = mask.actees.values[first + chosen].astype(np.int32)
            elif isinstance(space, GlobalCategoricalActionSpace | CategoricalActionSpace):
                kept = chosen.astype(np.uint8 if len(space) <= 256 else np.int32)
            else:
                kept = np.array(chosen, dtype=np.float32)
            is_one = len(chosen) == len(lengths) and bool((lengths == 1).all())
            columns.append(kept if is_one else RaggedArray.unchecked(kept, lengths.copy()))
        sent = _Sent(envs, columns)
        self._sent.append(sent)
        self._num_bytes += sent.num_bytes
        if self._num_bytes > _MAX_BYTES:
            self._give_up()

    def end(
        self, ended: Sequence[Episode], lost: Sequence[Episode], reasons: dict[int, str]
    ) -> None:
        """Handles ended and lost episodes.

        `reasons` says why episodes were lost, by environment; it is cleared.
        """
        if reasons:
            self.has_crashed |= any(each.startswith(_OF_WORKER) for each in reasons.values())
        if ended or lost:
            for env_id in dict.fromkeys(episode.env_id for episode in lost):
                first = next(episode for episode in lost if episode.env_id == env_id)
                self._lose(first, reasons.get(env_id))
            for episode in ended:
                self._end_episode(episode)
            self._remove()
        reasons.clear()

    def fail(self, error: BaseException) -> None:
        """Writes a failed episode's replay, if there is a folder; adds its path to the error."""
        if not isinstance(error, WorkerError):
            return
        self.has_crashed |= error.reason.startswith(_OF_WORKER)
        if error.env_id is None or error.seed is None:
            return
        number_of = error.episode or 0
        # At step 0 the episode failed at its start, so the sent actions are the previous episode's.
        spans = self._spans(error.env_id, number_of) if error.step else {}
        path, note = self._save_failure(error.env_id, number_of, error.seed, spans, error.reason)
        if path is not None:
            error.name_replay(str(path))
        if note:
            add_note(error, note)

    # ------------------------------------------------------------------ episodes

    @property
    def _end(self) -> int:
        return self._num_removed + len(self._sent)

    def _end_episode(self, episode: Episode) -> None:
        """Ends an agent's episode.

        Once the episodes of all agents of its game have ended, calls the watchers, unless actions
        are missing.
        """
        env_id = episode.env_id
        begin = self._begin[env_id]
        span = _Span(int(begin[episode.agent_id]), self._end, episode)
        begin[episode.agent_id] = self._end
        by_number = self._over.setdefault(env_id, {})
        spans = by_number.setdefault(episode.number, {})
        spans[episode.agent_id] = span
        for earlier in [each for each in by_number if each < episode.number]:
            # An agent skipped the earlier episode, which will never be complete.
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

    def _lose(self, lost: Episode, reason: str | None) -> None:
        """Handles an environment's lost episodes, given one of them.

        `reason` None = the game raised in a worker; "" = another environment was at fault, so no
        replay is written.
        """
        env_id, number_of = lost.env_id, lost.number
        spans = self._spans(env_id, number_of)
        if reason != "" and any(span.first < span.last for span in spans.values()):
            path, note = self._save_failure(env_id, number_of, lost.seed, spans, reason)
            place = f"env {env_id}, episode {number_of}"
            if path is not None:
                _logger.warning("%s failed; replay: %s", place, path)
            if note:
                _logger.warning("%s failed: %s", place, note)
        self.begin([env_id])

    def _spans(self, env_id: int, number_of: int) -> dict[int, _Span]:
        begin = self._begin[env_id].tolist()
        running = {agent_id: _Span(first, self._end) for agent_id, first in enumerate(begin)}
        return running | self._over.get(env_id, {}).get(number_of, {})

    # ------------------------------------------------------------------ replays

    def _replay(self, env_id: int, number_of: int, seed: int, spans: Mapping[int, _Span]) -> Replay:
        run = {"episode": number_of, "env": env_id}
        header = replace(self._header, episode_seed=seed, run=run)
        steps = {agent_id: count() for agent_id in spans}
        lines = [
            Decision(agent_id, next(steps[agent_id]), actions)
            for agent_id, actions in self._decisions(env_id, spans)
        ]
        lines += [
            Decision(agent_id, next(steps[agent_id]), end=End.of(span.episode))
            for agent_id, span in spans.items()
            if span.episode is not None
        ]
        return Replay(header, lines, name=f"env {env_id}, episode {number_of}")

    def _decisions(
        self, env_id: int, spans: Mapping[int, _Span]
    ) -> Iterator[tuple[int, dict[ActionName, Any]]]:
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
        """The actions of a row as JSON, without those that have no actors."""
        actions: dict[ActionName, Any] = {}
        for (name, space), column in zip(self._spaces.items(), sent.columns, strict=True):
            mine = column[row : row + 1] if isinstance(column, np.ndarray) else column[row]
            if not len(mine):
                continue
            if isinstance(space, GlobalCategoricalActionSpace):
                actions[name] = int(mine[0])
            elif isinstance(space, ContinuousActionSpace):
                actions[name] = json_rows(mine)
            else:
                actions[name] = mine.tolist()
        return actions

    def _save_failure(
        self,
        env_id: int,
        number_of: int,
        seed: int,
        spans: Mapping[int, _Span],
        reason: str | None,
    ) -> tuple[Path | None, str]:
        if self._failures is None:
            return None, ""
        if env_id in self._given_up:
            return None, "the episode was too long, or began too early, to keep all of its actions"

        def make() -> tuple[Replay, str]:
            error = WorkerError(_RAISED.rstrip() if reason is None else reason)
            replay = self._replay(env_id, number_of, seed, spans)
            replay.failure = failure_of(error)
            # An episode that hung or crashed would do so here, so it must not be played again.
            is_raised = reason is None or reason.startswith(_RAISED)
            if not is_raised or _RAISED + "MemoryError" in (reason or ""):
                return replay, ""
            return self._fail_again(replay, is_known=reason is not None)

        return self._failures.save(make)

    def _fail_again(self, replay: Replay, *, is_known: bool) -> tuple[Replay, str]:
        """The replay, with observations if it fails again, else with a note."""
        seen, found = played_again(replay, self._game, self._step_timeout_s)
        if not is_known and seen.failure and seen.num_decisions >= replay.num_decisions:
            return seen, ""
        if found is not None:
            return replay, f"played again, the episode does not fail like this: {found}"
        return seen, ""

    # ------------------------------------------------------------------ memory

    def _remove(self) -> None:
        first = int(self._begin.min())
        for by_number in self._over.values():
            first = min([first, *(s.first for spans in by_number.values() for s in spans.values())])
        while self._num_removed < first:
            self._num_bytes -= self._sent.popleft().num_bytes
            self._num_removed += 1

    def _give_up(self) -> None:
        """Drops the longest episodes, which would fill the memory."""
        while self._sent and self._num_bytes > _MAX_BYTES // 2:
            longest = int(self._begin.argmin()) // self._num_agents
            if not self._given_up:
                _logger.warning(
                    "env %d: its episode is too long for its actions to be kept", longest
                )
            self.begin([longest])
            self._given_up.add(longest)


def _place_of(env_id: int, envs: Sequence[range]) -> int | None:
    before = 0
    for part in envs:
        if env_id in part:
            return before + env_id - part.start
        before += len(part)
    return None
