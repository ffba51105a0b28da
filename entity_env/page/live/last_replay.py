"""`LastReplay`: keeps the last episode of a run in memory, to watch it again or to save it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from entity_env.authoring.agent import Agent
from entity_env.authoring.game import Game
from entity_env.authoring.local_run import Turn, Watch
from entity_env.core.seeding import EpisodeSeeds
from entity_env.errors import ReplayError
from entity_env.replay import Replay, ReplayWriter
from entity_env.views.animation import Animation
from entity_env.views.look import Look

_MAX_TURNS: Final = 10_000
"""Maximum number of turns of an episode, of all agents together, that is kept."""


class LastReplay:
    """Watches a run, and keeps the replay of its last whole episode in memory.

    Args:
        names: as given on the command line.
        source: as for `ReplayWriter`.
        watch: called after each turn is recorded.
    """

    takes_plain = True

    def __init__(self, names: Sequence[str], source: str, watch: Watch) -> None:
        self._last: tuple[Replay, Sequence[Turn]] | None = None
        self._names, self._source, self._watch = names, source, watch
        self._writer: ReplayWriter | None = None
        self._run: tuple[Game, Sequence[Agent], EpisodeSeeds, int] | None = None
        self._seen: list[Turn] = []
        self._number = 0

    @property
    def replay(self) -> Replay | None:
        """None before the first end, and for an episode of more than 10,000 turns."""
        return None if self._last is None else self._last[0]

    @property
    def turns(self) -> Sequence[Turn]:
        """The turns of the replay; empty without one."""
        return () if self._last is None else self._last[1]

    def begin_run(
        self, game: Game, agents: Sequence[Agent], seeds: EpisodeSeeds, episodes: int
    ) -> None:
        """See `RunWatcher`."""
        self._run = game, agents, seeds, episodes
        self._record()

    def end_run(self, error: BaseException | None) -> None:
        """See `RunWatcher`."""

    def __call__(self, turn: Turn) -> None:
        if turn.number > self._number and self._writer is None:
            self._record()
        self._number = max(self._number, turn.number)
        if (writer := self._writer) is not None:
            writer(turn)
            self._seen.append(turn)
            if writer.replays:
                found = writer.replays[-1]
                writer.replays.clear()
                self._last = (found, self._seen) if found.is_whole else None
                self._seen = []
            elif len(self._seen) >= _MAX_TURNS:
                self._writer, self._last, self._seen = None, None, []
        self._watch(turn)

    def animation(self, game: Game, look: Look) -> Animation | None:
        """The replay as an animation; None without one."""
        if self._last is None:
            return None
        replay, turns = self._last
        return replay.animation(game, look, turns=turns)

    def _record(self) -> None:
        if self._run is None:
            return
        writer = ReplayWriter(agents=self._names, source=self._source)
        with suppress(ReplayError):  # a setting that a replay cannot keep
            writer.begin_run(*self._run)
            self._writer, self._seen = writer, []
