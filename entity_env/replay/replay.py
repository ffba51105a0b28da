"""`Replay`: an episode that can be played again."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

from entity_env.agents.policy_agent import PolicyAgent, thoughts_to_show
from entity_env.authoring.game import Game
from entity_env.authoring.local_run import AgentRun, Thoughts, Turn
from entity_env.core.episode import Episode
from entity_env.core.observation import Observation, SelectEntityActionMask
from entity_env.core.spaces import EntityName, ObsSpace, Spaces, spaces_from_json
from entity_env.errors import ReplayError, SchemaError, UsageError
from entity_env.lazy_imports import np
from entity_env.replay.divergence import Divergence
from entity_env.replay.encoding import actions_from_json, observation_from_json
from entity_env.replay.file import (
    Decision,
    ReplayHeader,
    decision_line,
    failure_line,
    header_line,
    parse_decisions,
    parse_header,
    read_lines,
    replay_path,
    split_lines,
    write_replay,
    zipped,
)
from entity_env.replay.play_again import game_with_settings, play_again

if TYPE_CHECKING:
    from entity_env.views.animation import Animation
    from entity_env.views.look import Look

_A_TURN: Final = 20
"""Cost of a turn without entities, in entities."""
_CELLS_OF_A_MASK: Final = 64
"""Mask cells that cost as much as an entity."""
_GAMES: Final = f"{__name__.partition('.')[0]}.games."


class Replay:
    """An episode: its game's name and settings, its seed, and the decisions of its agents.

    Args:
        lines: decisions in the order they were made, and the ends of the agents' episodes.
        failure: how the episode failed, or "".
        is_cut: whether the file was incomplete.
    """

    def __init__(
        self,
        header: ReplayHeader,
        lines: Sequence[Decision],
        *,
        failure: str = "",
        name: str = "the replay",
        is_cut: bool = False,
    ) -> None:
        self.header = header
        self.lines = lines
        self.failure = failure
        self.name = name
        self.is_cut = is_cut

    @classmethod
    def load(cls, path: str | Path) -> Replay:
        """Reads a file, as far as possible if it is incomplete.

        Raises:
            ReplayError: the file is unreadable or not a replay; the error names the line.
        """
        path = Path(path)
        lines, is_cut = read_lines(path)
        return cls._parsed(lines, is_cut, str(path))

    @classmethod
    def from_bytes(cls, content: bytes, name: str = "the replay") -> Replay:
        """Reads a file's content; see `load`."""
        return cls._parsed(*split_lines(content, name), name)

    @classmethod
    def _parsed(cls, lines: Sequence[str], is_cut: bool, name: str) -> Replay:
        if not lines:
            raise ReplayError(f"{name} is not a replay: it has no complete line")
        header, spaces = parse_header(lines[0], name)
        found: list[Decision] = []
        failure = ""
        for line in parse_decisions(lines[1:], header, spaces[1], name):
            if isinstance(line, str):
                failure = line
            else:
                found.append(line)
        return cls(header, found, failure=failure, name=name, is_cut=is_cut)

    def save(self, path: str | Path) -> None:
        """Writes `NAME.replay` atomically; replaces an existing replay.

        Raises:
            UsageError: another name.
            ReplayError: it cannot be written, or an existing file is not a replay.
        """
        write_replay(replay_path(path), self.to_bytes())

    def to_bytes(self) -> bytes:
        """The content of the file; deterministic."""
        return zipped([*self._texts(), *([failure_line(self.failure)] if self.failure else [])])

    @property
    def sha(self) -> str:
        """First 16 hexadecimal digits of the SHA-256 of header and lines, without `failure`."""
        return hashlib.sha256("\n".join(self._texts()).encode()).hexdigest()[:16]

    def _texts(self) -> list[str]:
        return [header_line(self.header), *map(decision_line, self.lines)]

    @property
    def num_decisions(self) -> int:
        """Decisions of all agents together."""
        return sum(line.end is None for line in self.lines)

    @property
    def is_whole(self) -> bool:
        """Whether the episodes of all agents that took part have ended."""
        ended = {line.agent_id for line in self.lines if line.end is not None}
        return bool(ended) and ended == {line.agent_id for line in self.lines}

    @property
    def rewards(self) -> list[float | None]:
        """Each agent's episode reward; None if unfinished, or if it took no part."""
        found = {line.agent_id: line.end.reward for line in self.lines if line.end is not None}
        return [found.get(agent_id) for agent_id in range(self.header.num_agents)]

    @cached_property
    def spaces(self) -> Spaces:
        """Observation space and action space."""
        return spaces_from_json(self.header.spaces)

    @cached_property
    def has_observations(self) -> bool:
        """Whether every line has an observation."""
        return all(line.score is not None for line in self.lines)

    def find_game(self) -> Game:
        """The game named in the header, if this package has it or its module has been imported.

        Nothing else is imported, because a file could name anything.

        Raises:
            ReplayError: it is not available; pass the game instead.
        """
        module, _, name = self.header.source.partition(":")
        if module.startswith(_GAMES):
            try:
                import_module(module)
            except (ImportError, ValueError):
                module = ""
        stem = module.removesuffix(".py")
        for key in (stem, "__main__"):
            found = getattr(sys.modules.get(key), name, None)
            if isinstance(found, Game) and found.name == self.header.game:
                return found
        raise ReplayError(
            f"{self.name} is a replay of the game {self.header.game!r}"
            + (f" in {self.header.source}" if self.header.source else "")
            + ", which is not imported: pass the game"
        )

    def verify(
        self, game: Game | None = None, *, step_timeout_s: float | None = None
    ) -> Divergence | None:
        """Plays the episode again and returns the first difference, or None.

        Runs in this process; `verify_in_new_process` also detects dependence on the order of sets.

        Args:
            game: None = `find_game`.
            step_timeout_s: as for `play_again`.

        Raises:
            ReplayError: the game is not available; or as for `play_again`.
        """
        return play_again(self, game or self.find_game(), step_timeout_s=step_timeout_s)[0]

    def require_decision(self, at: int) -> None:
        """Raises UsageError unless `at` is from 0 to `num_decisions`."""
        if not 0 <= at <= self.num_decisions:
            raise UsageError(
                f"{self.name} has {self.num_decisions} decisions: expected 0 to "
                f"{self.num_decisions}, got {at}"
            )

    def turns(
        self,
        game: Game | None = None,
        *,
        step_timeout_s: float | None = 30.0,
        max_shown: int | None = None,
    ) -> list[Turn]:
        """Every decision with its observation, and the ends, in order.

        Read from the file; if it holds only actions, they are played again in this process.
        `turns_in_new_process` also limits time and memory.

        Args:
            game: None = `find_game`; not needed if the file has observations.
            step_timeout_s: as for `Game.run`.
            max_shown: maximum number of entities and features in all turns together; types and
                actions count too. None = no limit.

        Raises:
            ReplayError: the file does not match its own spaces, or shows too much; the game is not
                available or differs.
        """
        shown = _Shown(self.name, self.spaces[0], max_shown)
        if self.has_observations:
            return self._turns_of_file(shown)
        turns: list[Turn] = []

        def keep(turn: Turn) -> None:
            shown.count(turn.observation)
            turns.append(turn)

        if self.failure and not self.num_decisions:
            return turns
        game = game or self.find_game()
        found, _ = play_again(
            self,
            game,
            watch=keep,
            step_timeout_s=step_timeout_s,
            stops=bool(self.failure),
        )
        if found is not None:
            raise ReplayError(f"{self.name} cannot be shown: {found}")
        return turns

    def _turns_of_file(self, shown: _Shown) -> list[Turn]:
        turns = []
        last_score: dict[int, float] = {}
        for i, line in enumerate(self.lines):
            try:
                turns.append(self._turn(line, last_score, shown))
            except SchemaError as error:
                raise ReplayError(f"{self.name}, line {i + 2}: {error}") from error
        return turns

    def _turn(self, line: Decision, last_score: dict[int, float], shown: _Shown) -> Turn:
        score = 0.0 if line.score is None else line.score
        end, header = line.end, self.header
        observation = observation_from_json(
            line.seen,
            self.spaces,
            reward=line.reward(last_score.get(line.agent_id)),
            terminated=end is not None and end.terminated,
            truncated=end is not None and end.truncated,
            metrics=None if end is None else end.metrics,
        )
        shown.count(observation)
        last_score[line.agent_id] = score
        probabilities = {
            name: np.array(rows, dtype=np.float32) for name, rows in line.probabilities.items()
        }
        has_thoughts = probabilities or line.value is not None
        return Turn(
            line.agent_id,
            line.step,
            score,
            observation,
            {} if end is not None else actions_from_json(line.actions, observation, self.spaces),
            None
            if end is None
            else Episode(
                end.reward,
                end.length,
                end.terminated,
                end.truncated,
                header.episode_seed,
                agent_id=line.agent_id,
                metrics=end.metrics,
            ),
            Thoughts(probabilities, line.value) if has_thoughts else None,
            is_cut=end is not None and end.cut,
        )

    def animation(
        self,
        game: Game | None = None,
        look: Look | None = None,
        *,
        thinker: PolicyAgent | None = None,
        turns: Sequence[Turn] | None = None,
    ) -> Animation:
        """The episode as a page, a video or stills; see `turns`.

        Args:
            game: provides the look, and repeats the decisions if the file holds only actions; None
                = `find_game`, if available.
            look: None = the game's look; without a game, the default look.
            thinker: agent whose probabilities, value, attention and past are shown at every
                decision, even if another agent decided; None = the stored values, without attention
                and past.
            turns: an earlier result of `turns`; None = call it.

        Raises:
            ReplayError: there are no decisions, or as `turns`.
            UsageError: an agent that computes no thoughts.
        """
        from entity_env.views import Animation, find_look  # few programs draw

        if game is None and (look is None or not self.has_observations):
            with suppress(ReplayError):
                game = self.find_game()
        turns = self.turns(game) if turns is None else turns
        if not turns:
            raise ReplayError(f"{self.name} has no decisions, so there is nothing to draw")
        if game is not None:
            game = self.with_settings_of(game)
            look = find_look(game) if look is None else look
        if thinker is not None:
            turns = list(_with_thoughts(turns, thinker, game))
        header = self.header
        return Animation.of(
            turns,
            *self.spaces,
            look,
            num_agents=header.num_agents,
            title=header.game,
            names=[agent.get("name", "") for agent in header.agents],
            about=self._about(),
        )

    def _about(self) -> Iterator[tuple[str, object]]:
        """Facts shown in drawings.

        Settings that are texts are left out: they may be paths, and drawings are shared.
        """
        header = self.header
        yield "seed", header.episode_seed
        for name, value in header.settings.items():
            if isinstance(value, bool | int | float):
                yield name, value
        if header.game_version is not None:
            yield "version", header.game_version
        if header.schema:
            yield "schema", header.schema
        for i, agent in enumerate(header.agents):
            if sha := agent.get("sha"):
                yield f"agent {i}" if header.num_agents > 1 else "agent", sha
        yield "replay", self.sha
        yield from header.made_with.items()

    def _repr_html_(self) -> str:
        return self.animation()._repr_html_()

    def with_settings_of(self, game: Game) -> Game:
        """The game with the settings of this replay.

        Raises:
            ReplayError: the game lacks such a setting, or has another number of agents; or a
                setting could name a file and differs from `game`'s: see `Game.open_settings`.
        """
        return game_with_settings(self, game)

    def __len__(self) -> int:
        return self.num_decisions

    def __repr__(self) -> str:
        rewards: Mapping[int, float | None] = dict(enumerate(self.rewards))
        shown = ", ".join(f"{reward:g}" for reward in rewards.values() if reward is not None)
        return f"Replay({self.header.game}, {self.num_decisions} decisions, reward {shown or '-'})"


class _Shown:
    """Counts what a replay shows, roughly in proportion to its drawing cost."""

    def __init__(self, name: str, obs_space: ObsSpace, most: int | None) -> None:
        self._name = name
        self._types = obs_space.entities
        self._most = most
        self._total = 0

    def count(self, observation: Observation) -> None:
        """Adds an observation; ReplayError if the total is too large."""
        if self._most is None:
            return
        counts = {name: len(rows) for name, rows in observation.features.items()}
        total = sum(counts.values())
        self._total += sum(counts[name] * self._num_texts(name) for name in counts)
        self._total += (len(self._types) + total) * (1 + len(observation.actions)) + _A_TURN
        for mask in observation.actions.values():
            if isinstance(mask, SelectEntityActionMask):
                ids = (mask.actor_ids, mask.actee_ids)
                num_actors, num_actees = (total if each is None else len(each) for each in ids)
                self._total += num_actors * num_actees // _CELLS_OF_A_MASK
        if self._total > self._most:
            raise ReplayError(
                f"{self._name} shows more than {self._most:,} entities and features in all its "
                "decisions together: if you trust the replay, raise the limit, --max-shown"
            )

    def _num_texts(self, name: EntityName) -> int:
        """Features of an entity that are shown: of a picture only its shape."""
        kind = self._types[name]
        return len(kind.features) if kind.shape is None else 1


def _with_thoughts(turns: Sequence[Turn], agent: PolicyAgent, game: Game | None) -> Iterator[Turn]:
    if game is not None:
        agent.join(AgentRun(game.schema))
    seats: dict[int, PolicyAgent] = {}
    for turn in turns:
        seat = seats.get(turn.agent_id) or (agent.copy_for_seat() if seats else agent)
        seats[turn.agent_id] = seat
        thoughts = None if turn.episode is not None else thoughts_to_show(seat, turn.observation)
        seat.watch(turn.observation)
        if turn.episode is not None:
            yield turn
            continue
        if thoughts is None:
            raise UsageError(f"a {type(agent).__name__} does not compute probabilities to show")
        yield replace(turn, thoughts=thoughts)
