"""`ReplayWriter`: writes a replay of each episode of a run; `record` and `branch`."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import chain
from pathlib import Path
from typing import Final

from entity_env.agents.agent_identity import agent_identity
from entity_env.authoring.agent import Agent
from entity_env.authoring.game import Game
from entity_env.authoring.game_traceback import is_a
from entity_env.authoring.identity import package_versions, source_of
from entity_env.authoring.local_run import Thoughts, Turn, Watch
from entity_env.core.observation import Action
from entity_env.core.seeding import EpisodeSeeds
from entity_env.core.spaces import spaces_to_json
from entity_env.errors import ReplayError, UsageError, shown
from entity_env.replay.divergence import Divergence, failure_of
from entity_env.replay.encoding import (
    Json,
    actions_to_json,
    checksum,
    json_number,
    observation_to_json,
)
from entity_env.replay.file import (
    Decision,
    End,
    ReplayHeader,
    decision_line,
    header_line,
    parse_header,
    replay_path,
    require_replaceable,
    schema_hash,
)
from entity_env.replay.play_again import play_again, same_random_states
from entity_env.replay.replay import Replay
from entity_env.views.parts.bars import number_rows

STEP_TIMEOUT_S: Final = 30.0
"""Default step timeout of a game played in this process for its replay."""
PACKAGES: Final = ("entity_env", "numpy")
"""Packages on which an episode may depend."""
_EPISODE: Final = "{episode}"
_DIGEST_DIGITS: Final = 16
_DIGITS: Final = 4
"""Decimals of probabilities and values, which are only for display."""


@dataclass
class _OpenEpisode:
    """The lines of a running episode, and the path of their file."""

    header: ReplayHeader
    lines: list[Decision] = field(default_factory=list)
    playing: set[int] = field(default_factory=set)
    """Agents in the middle of the episode."""
    num_ended: int = 0
    path: Path | None = None

    def write(self, text: str, mode: str = "a") -> None:
        """Adds a line to the unfinished file, then closes it: the episode may never end."""
        if self.path is None:
            return
        part = self._part(self.path)
        try:
            if mode == "w":
                part.parent.mkdir(parents=True, exist_ok=True)
            with open(part, mode, encoding="utf-8") as file:
                file.write(f"{text}\n")
        except (OSError, ValueError) as error:
            with suppress(OSError, ValueError):
                part.unlink(missing_ok=True)
            raise ReplayError(f"cannot write {self.path}: {error}") from error

    def save(self, replay: Replay) -> None:
        """Writes the file, and removes the unfinished one, also if that fails."""
        if self.path is not None:
            try:
                replay.save(self.path)
            finally:
                self._part(self.path).unlink(missing_ok=True)

    def _part(self, path: Path) -> Path:
        return path.with_name(f"{path.stem}.part{path.suffix}")


class ReplayWriter:
    """Watches `Game.run` and writes a replay of every episode.

    While its episode runs, the file `NAME.part.replay` holds plain lines, so a crash loses at most
    the last one. When the episode ends, it becomes `NAME.replay`, zipped, which replaces an
    existing replay of that name.

    Args:
        path: `NAME.replay`, with `{episode}` in it for several episodes. None = no files, see
            `replays`.
        see: store observations; then the replay can be drawn without the game, and differences name
            an entity.
        think: call the `think` method of agents that have one, at turns that come without thoughts.
            With or without it, thoughts are stored: the predicted value and, with `see`, the
            probabilities.
        agents: names of the agents; default: the names of their classes.
        source: source of the game, `module:name` or `file.py:name`; default: its `source_of`.
        parent: see `ReplayHeader`.
        watch: another watcher, called after each line.

    Raises:
        UsageError: `path` does not end with `.replay`.
    """

    def __init__(
        self,
        path: str | Path | None = None,
        *,
        see: bool = True,
        think: bool = False,
        agents: Sequence[str] = (),
        source: str = "",
        parent: Mapping[str, Json] | None = None,
        watch: Watch | None = None,
    ) -> None:
        self.replays: list[Replay] = []
        """Replays of episodes in the order they ended; after the run, also of unfinished ones."""
        self._path = None if path is None else str(replay_path(path))
        self._see = see
        self._think = think
        self._names = tuple(agents)
        self._source = source
        self._parent = parent
        self._watch = watch
        self.takes_plain = watch is None or getattr(watch, "takes_plain", False)
        """See `Watch`."""
        self._game: Game | None = None
        self._header = ReplayHeader("", 0, {})
        """Header of this run; every episode adds its seed."""
        self._agents: Sequence[Agent] = ()
        self._seeds = EpisodeSeeds(0)
        self._open: dict[int, _OpenEpisode] = {}

    def begin_run(
        self, game: Game, agents: Sequence[Agent], seeds: EpisodeSeeds, episodes: int
    ) -> None:
        """See `RunWatcher`."""
        if self._path is not None and episodes > 1 and _EPISODE not in self._path:
            raise UsageError(
                f"a replay holds one episode, but {self._path} would hold {episodes}: write "
                f"{_EPISODE} in its name"
            )
        self._game, self._agents, self._seeds = game, agents, seeds
        names = (*self._names, *(type(agent).__name__ for agent in agents[len(self._names) :]))
        self._header = replace(
            header_of(game, self._source),
            agents=[_agent(name, agent) for name, agent in zip(names, agents, strict=False)],
            parent=self._parent,
        )
        self._open.clear()

    def __call__(self, turn: Turn) -> None:
        game = self._game
        if game is None:
            raise ReplayError("a ReplayWriter watches Game.run: game.run(agent, watch=writer)")
        number_of = turn.number
        episode = self._open.get(number_of) or self._begin(game, number_of)
        line = self._line(game, turn)
        text = decision_line(line)
        episode.lines.append(line)
        episode.write(text)
        episode.playing.add(turn.agent_id)
        if turn.episode is not None:
            episode.playing.remove(turn.agent_id)
            episode.num_ended += 1
            if episode.num_ended == game.num_agents:
                self._finish(number_of)
        if self._watch is not None:
            self._watch(turn)

    def end_run(self, error: BaseException | None) -> None:
        """See `RunWatcher`; also writes unfinished episodes."""
        text = failure_of(error) if error is not None and is_a(error, Exception) else ""
        for number_of in sorted(self._open):
            self._finish(number_of, text)

    def _begin(self, game: Game, number_of: int) -> _OpenEpisode:
        for earlier in sorted(self._open):
            if not self._open[earlier].playing:  # over: some agents skipped it
                self._finish(earlier)
        seed = self._seeds.run_seed
        run = {} if seed is None else {"seed": seed, "episode": number_of}
        header = replace(self._header, episode_seed=self._seeds[number_of], run=run)
        episode = _OpenEpisode(header)
        if self._path is not None:
            episode.path = path = Path(self._path.replace(_EPISODE, str(number_of)))
            require_replaceable(path)
            parse_header(header_line(header), str(path))  # fail before writing an unreadable file
            episode.write(header_line(header), "w")
        self._open[number_of] = episode
        return episode

    def _finish(self, number_of: int, failure: str = "") -> None:
        episode = self._open.pop(number_of)
        replay = Replay(episode.header, episode.lines, failure=failure)
        self.replays.append(replay)
        episode.save(replay)

    def _line(self, game: Game, turn: Turn) -> Decision:
        observation, obs_space = turn.observation, game.obs_space()
        end = None if turn.episode is None else End.of(turn.episode, cut=turn.is_cut)
        thoughts = turn.thoughts
        if thoughts is None and self._think and end is None:
            think = getattr(self._agents[turn.agent_id], "think", None)
            thoughts = None if think is None else think(observation)
        return Decision(
            agent_id=turn.agent_id,
            step=turn.step,
            actions=actions_to_json(turn.actions, observation, obs_space),
            checksum=checksum(observation, obs_space),
            score=json_number(turn.score) if self._see else None,
            seen=observation_to_json(observation, obs_space) if self._see else {},
            probabilities=_probabilities(turn.actions, thoughts) if self._see else {},
            value=None
            if thoughts is None or thoughts.value is None or not math.isfinite(thoughts.value)
            else round(float(thoughts.value), _DIGITS),
            end=end,
        )


def record(
    game: Game,
    *agents: Agent,
    seed: int = 0,
    see: bool = True,
    think: bool = True,
    **settings: object,
) -> Replay:
    """Plays one episode and returns its replay.

    Args:
        game, agents, settings: as for `Game.run`.
        seed: seed of the run; the episode is its first.
        see, think: as for `ReplayWriter`.

    Raises:
        ReplayError: the agent left before its first decision.
        UsageError, ProtocolError, WorkerError: as `Game.run`.
    """
    writer = ReplayWriter(see=see, think=think)
    game.with_settings(**settings).run(*agents, seed=seed, watch=writer)
    if not writer.replays:
        raise ReplayError(f"{game.name}: the agent left before its first decision")
    return writer.replays[0]


def branch(
    replay: Replay,
    at: int,
    agents: Sequence[Agent],
    game: Game | None = None,
    *,
    see: bool = True,
) -> Replay:
    """Plays the first decisions of a replay again, then lets other agents continue.

    Args:
        replay: the replay to start from.
        at: number of decisions to keep, of all agents together, 0 to `num_decisions`.
        agents: one per agent of the game.
        game: None = `Replay.find_game`.
        see: as for `ReplayWriter`.

    Returns:
        The whole episode; its `header.parent` names the original replay and `at`.

    Raises:
        UsageError: `at` is out of range, or the number of agents is wrong.
        ReplayError: the game diverges before that decision, or the agents leave before the first.
    """
    replay.require_decision(at)
    game = game or replay.find_game()
    if len(agents) != replay.header.num_agents:
        raise UsageError(f"{game.name} is for {replay.header.num_agents} agents: got {len(agents)}")
    parent = {"sha": replay.sha, "at": at}
    writer = ReplayWriter(see=see, think=True, source=replay.header.source, parent=parent)
    found, _ = play_again(replay, game, until=at, then=agents, watch=writer)
    if found is not None:
        raise ReplayError(f"{replay.name} cannot be continued: {found}")
    if not writer.replays:
        raise ReplayError(f"{replay.name}: the agents left before the first decision")
    return writer.replays[0]


def played_again(
    replay: Replay, game: Game, step_timeout_s: float | None = STEP_TIMEOUT_S
) -> tuple[Replay, Divergence | None]:
    """Plays a replay that holds only actions again, in this process.

    Leaves the random states of `random` and `numpy.random` unchanged.

    Args:
        replay: the replay to play.
        game: the game of the replay.
        step_timeout_s: as for `Game.run`.

    Returns:
        The replay with checksums and observations, as far as it could be played; and the first
        difference, None if there is none.
    """
    writer = ReplayWriter()
    with same_random_states():
        found, _ = play_again(replay, game, watch=writer, step_timeout_s=step_timeout_s)
    if not writer.replays:
        return replay, found
    seen = writer.replays[0]
    return Replay(replay.header, seen.lines, failure=seen.failure, name=replay.name), found


def header_of(game: Game, source: str = "") -> ReplayHeader:
    """The replay header for a game with its settings, without values that differ by episode.

    Args:
        game: the game with its settings.
        source: "" = `source_of` the game.

    Raises:
        ReplayError: a setting that JSON cannot represent.
    """
    spaces = spaces_to_json(game.obs_space(), game.action_space())
    return ReplayHeader(
        game=game.name,
        source=source or source_of(game),
        settings=settings_to_json(game),
        episode_seed=0,
        num_agents=game.num_agents,
        schema=schema_hash(spaces),
        spaces=spaces,
        made_with={"entity_env": "", **package_versions(*PACKAGES)},  # "": run from a checkout
        game_version=game.version,
    )


def settings_to_json(game: Game) -> dict[str, Json]:
    """The settings of a game, with Enums as member names and infinity as text.

    Raises:
        ReplayError: a setting that JSON cannot represent.
    """
    settings = {}
    for name, value in game.settings.items():
        kept = value.name if isinstance(value, Enum) else value
        if isinstance(kept, float) and math.isinf(kept):
            kept = str(kept)  # parsed as on a command line
        if not _is_read_back(game, name, kept, value):
            raise ReplayError(
                f"{game.name}: a replay can store only settings that are numbers, texts or Enums, "
                f"and are annotated as such, got {name}={shown(value)}"
            )
        settings[name] = kept
    return settings


def _is_read_back(game: Game, name: str, kept: Json, value: object) -> bool:
    """Whether JSON can represent a setting, and the game reads it back unchanged."""
    if not isinstance(kept, bool | int | float | str | None):
        return False
    try:
        read = game.with_settings(**{name: json.loads(json.dumps(kept))}).settings[name]
    except (UsageError, ValueError):  # ValueError: an integer of more than 4,300 digits
        return False
    return bool(read == value) and isinstance(read, Enum) == isinstance(value, Enum)


def _agent(name: str, agent: Agent) -> dict[str, str]:
    digest = agent_identity(agent, name).get("sha256", "")[:_DIGEST_DIGITS]
    return {"name": name, **({"sha": digest} if digest else {})}


def _probabilities(actions: Mapping[str, Action], thoughts: Thoughts | None) -> dict[str, Json]:
    found = {} if thoughts is None else dict(thoughts.probabilities)
    for name, action in actions.items():
        probs = getattr(action, "probs", None)
        if probs is not None:
            found[name] = probs
    tables = {name: number_rows(rows) for name, rows in found.items()}
    return {
        name: [[json_number(round(each, _DIGITS)) for each in row] for row in rows]
        for name, rows in tables.items()
        if any(rows) and all(map(math.isfinite, chain.from_iterable(rows)))
    }
