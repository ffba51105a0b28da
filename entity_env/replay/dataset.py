"""`dataset_of`: the decisions in replays, as training data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.imitation import Dataset, DatasetRecorder
from entity_env.authoring.game import Game
from entity_env.authoring.local_run import Turn
from entity_env.core.spaces import Spaces
from entity_env.errors import ReplayError, SchemaError, UsageError
from entity_env.replay.divergence import schema_divergence
from entity_env.replay.file import SUFFIX
from entity_env.replay.new_process import PLAY_LIMITS, PlayLimits, turns_in_new_process
from entity_env.replay.replay import Replay

_AT_ONCE: Final = 32
"""Maximum replays held in memory at a time, and played again in one process."""


def replay_files(paths: Iterable[str | Path]) -> list[Path]:
    """The given files, in order; for a folder, the replay files in it and its subfolders.

    Files of one folder are sorted by path.

    Raises:
        UsageError: a folder without replays, or a missing file.
    """
    found: list[Path] = []
    for path in map(Path, paths):
        try:
            inside = sorted(path.rglob(f"*{SUFFIX}")) if path.is_dir() else [path]
            is_there = bool(inside) and inside[0].exists()
        except OSError as error:
            raise UsageError(f"cannot read {path}: {error.strerror}") from error
        if not is_there:
            what = f"no replay in the folder {path}" if path.is_dir() else f"no file {path}"
            raise UsageError(f"{what}: expected files NAME{SUFFIX}, or folders with such files")
        found += inside
    return found


def dataset_of(
    replays: Iterable[Replay | str | Path],
    game: Game | Callable[[Replay], Game] | None = None,
    *,
    agents: Sequence[int | str] = (),
    winners: bool = False,
    min_reward: float | None = None,
    on_replay: Callable[[Replay], None] | None = None,
    limits: PlayLimits | None = None,
) -> Dataset:
    """The decisions of agents in replays.

    Replays that hold only actions are played again, which needs the game.

    Args:
        replays: loaded replays, or paths of files and folders.
        game: the game whose spaces all replays must have; it plays replays that hold only actions.
            Or a function that returns the game for such a replay. None = as `Replay.find_game`.
        agents: only these agents, by index or by name in the replay; empty = all.
        winners, min_reward: as in `Dataset.filter`. An unfinished episode counts with its reward so
            far.
        on_replay: called after each replay.
        limits: limits on what each replay shows, and on playing again, which happens in new
            processes: each plays up to 32 replays of one game. None = replays are played again in
            this process, only with the default `step_timeout_s` of `Replay.turns`.

    Raises:
        UsageError: replays with other spaces, none of these agents, or no decisions.
        ReplayError: a replay that is unreadable or cannot be played again.
    """
    recorder = DatasetRecorder()
    choice = _Choice(agents)
    for replay, spaces, turns in _played(_loaded(replays), game, limits):
        num_before = recorder.num_decisions
        try:
            recorder.add_episode(
                spaces,
                turns,
                replay.name,
                seed=replay.header.episode_seed,
                recording=_recording_of(replay),
            )
        except SchemaError as error:
            raise ReplayError(f"{replay.name}: {error}") from error
        choice.add(replay, recorder.num_decisions - num_before)
        if on_replay is not None:
            on_replay(replay)
    dataset = recorder.dataset()
    return dataset.filter(choice.rows(dataset), winners=winners, min_reward=min_reward)


def _recording_of(replay: Replay) -> dict[str, object]:
    header = replay.header
    identity = {"source": header.source, "version": header.game_version}
    return {
        "game": header.game,
        "settings": dict(header.settings),
        "identity": {name: value for name, value in identity.items() if value not in ("", None)},
        "agents": [dict(agent) for agent in header.agents],
        "seed": header.run.get("seed"),
        "made_with": dict(header.made_with),
    }


def _loaded(replays: Iterable[Replay | str | Path]) -> Iterator[Replay]:
    for each in replays:
        if isinstance(each, Replay):
            yield each
        else:
            yield from map(Replay.load, replay_files([each]))


def _played(
    replays: Iterator[Replay],
    game: Game | Callable[[Replay], Game] | None,
    limits: PlayLimits | None,
) -> Iterator[tuple[Replay, Spaces, list[Turn]]]:
    """Replays with spaces and turns; with `limits`, those of one game are played together."""
    while some := list(islice(replays, _AT_ONCE)):
        spaces = [_spaces_of(replay, game) for replay in some]
        played: dict[int, list[Turn]] = {}
        groups: dict[object, list[int]] = {}
        for i, replay in enumerate(some if limits is not None else ()):
            header = replay.header
            if not replay.has_observations:
                key = header.game, header.source, repr(sorted(header.settings.items()))
                groups.setdefault(key, []).append(i)
        for group in groups.values():
            own = _game_of(some[group[0]], game) or some[group[0]].find_game()
            turns = turns_in_new_process([some[i] for i in group], own, limits or PLAY_LIMITS)
            played |= zip(group, turns, strict=True)
        for i, replay in enumerate(some):
            most = None if limits is None else limits.max_shown
            found = (
                played[i] if i in played else replay.turns(_game_of(replay, game), max_shown=most)
            )
            yield replay, spaces[i], found


def _spaces_of(replay: Replay, game: Game | Callable[[Replay], Game] | None) -> Spaces:
    """The given game's spaces, since a replay's may lack `is_single`; else the replay's spaces."""
    if not isinstance(game, Game):
        return replay.spaces
    spaces = game.obs_space(), game.action_space()
    if found := schema_divergence(replay.spaces, spaces):
        raise UsageError(
            f"{replay.name} was recorded with a different game than {game.name}: {found}"
        )
    return spaces


def _game_of(replay: Replay, game: Game | Callable[[Replay], Game] | None) -> Game | None:
    """The game for playing a replay again; None if it needs no game, or names its game."""
    if game is None or isinstance(game, Game):
        return game
    return None if replay.has_observations else game(replay)


class _Choice:
    def __init__(self, agents: Sequence[int | str]) -> None:
        self._agents = agents
        self._names: set[str] = set()
        self._chosen: list[tuple[list[int], int]] = []
        """Per replay, the wanted agents and the number of decisions."""

    def add(self, replay: Replay, num_decisions: int) -> None:
        header = replay.header
        names = [agent.get("name", "") for agent in header.agents]
        self._names.update(names)
        ids = [
            i
            for i in range(header.num_agents)
            if i in self._agents or (i < len(names) and names[i] in self._agents)
        ]
        self._chosen.append((ids, num_decisions))

    def rows(self, dataset: Dataset) -> NDArray[np.bool_] | None:
        if not self._agents:
            return None
        counts = [count for _, count in self._chosen]
        edges = np.cumsum([0, *counts])
        rows = np.zeros(len(dataset), dtype=np.bool_)
        for (ids, _), first, end in zip(self._chosen, edges[:-1], edges[1:], strict=True):
            rows[first:end] = np.isin(dataset.agent_id[first:end], ids)
        if not rows.any():
            wanted = ", ".join(map(str, self._agents))
            there = ", ".join(sorted(self._names - {""})) or "none"
            raise UsageError(
                f"no decision is from agent {wanted}: the replays have the agents "
                f"{np.unique(dataset.agent_id).tolist()[:20]}, names: {there}"
            )
        return rows
