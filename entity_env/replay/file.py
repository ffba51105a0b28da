"""Replay files, `NAME.replay`: gzipped JSON lines, a header and one line per decision."""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from entity_env.core.episode import Episode
from entity_env.core.files import read_file, write_file
from entity_env.core.spaces import ActionName, ActionSpace, Spaces, spaces_from_json
from entity_env.errors import ReplayError, SchemaError, UsageError, shown
from entity_env.replay.encoding import Json, action_problem, is_json_number, is_row, json_number

SUFFIX: Final = ".replay"
FORMAT: Final = "entity-env.replay"
VERSION: Final = 1
_MAGIC: Final = b"\x1f\x8b"
_MAX_FILE_BYTES: Final = 1 << 28
_MAX_BYTES: Final = 1 << 30
"""Maximum bytes of the lines, which gzip can shrink a thousandfold."""
_MAX_LISTS: Final = 1 << 25
"""Maximum lists and objects in all lines; an empty list takes 20 times its text in memory."""
_MAX_AGENTS: Final = 10**6
_SAMPLE_BYTES: Final = 512
"""Number of bytes at the start of a replay that are sure to contain the name of the format."""


@dataclass(frozen=True)
class ReplayHeader:
    """The first line of a replay.

    Args:
        source: where the game is defined, `module:name` or `file.py:name`; "" if unknown.
        settings: settings that differ from the defaults.
        episode_seed: seed of this episode, enough to play it again.
        spaces: result of `spaces_to_json`, which makes the file readable without the game.
        schema: first 16 hexadecimal digits of the SHA-256 of `spaces`.
        run: seed of the run, and index of the episode and of its environment, if known.
        made_with: versions of the packages and of Python.
        agents: `name` of each agent, and `sha` of its network or bot, if any: the first 16
            hexadecimal digits of the SHA-256; empty if the agents are unknown.
        parent: for a branch: `sha` of the original replay, and `at`, the number of decisions taken
            from it.
        game_version: version of the game, as given by its author, or None.
    """

    game: str
    episode_seed: int
    spaces: Mapping[str, Json]
    source: str = ""
    settings: Mapping[str, Json] = field(default_factory=dict)
    num_agents: int = 1
    schema: str = ""
    run: Mapping[str, int] = field(default_factory=dict)
    made_with: Mapping[str, str] = field(default_factory=dict)
    agents: Sequence[Mapping[str, str]] = ()
    parent: Mapping[str, Json] | None = None
    game_version: str | int | None = None


@dataclass(frozen=True, slots=True)
class End:
    """How an agent's episode ended.

    Args:
        reward, length, terminated, truncated, metrics: as in `Episode`, but only finite metrics.
        cut: the run ended the episode, not the game, for example at its step limit.
    """

    reward: float
    length: int
    terminated: bool
    truncated: bool
    metrics: Mapping[str, float] = field(default_factory=dict)
    cut: bool = False

    @classmethod
    def of(cls, episode: Episode, *, cut: bool = False) -> End:
        """The end of an episode."""
        metrics = {
            name: json_number(value)
            for name, value in episode.metrics.items()
            if math.isfinite(value)
        }
        flags = episode.terminated, episode.truncated
        return cls(json_number(episode.reward), episode.length, *flags, metrics, cut)


@dataclass(frozen=True, slots=True)
class Decision:
    """One line of a replay: a decision of an agent, or the end of its episode.

    Args:
        step: number of the agent's previous decisions.
        actions: as from `actions_to_json`; empty at the end.
        checksum: of the observation; None if only the actions were stored.
        score: running score; None if observations were not stored.
        seen: `o`, `q`, `h` and `m`, as from `observation_to_json`; empty if not stored.
        probabilities: of the choices, per action and actor.
        value: value predicted by the agent.
        end: set only for the end of the episode.
    """

    agent_id: int
    step: int
    actions: Mapping[ActionName, Json] = field(default_factory=dict)
    checksum: int | None = None
    score: float | None = None
    seen: Mapping[str, Json] = field(default_factory=dict)
    probabilities: Mapping[ActionName, Json] = field(default_factory=dict)
    value: float | None = None
    end: End | None = None

    def reward(self, last_score: float | None) -> float:
        """Reward since the agent's previous line and its score; None = there is no such line."""
        if last_score is None:
            return 0.0 if self.end is None else self.end.reward
        return (self.score or 0.0) - last_score


def schema_hash(spaces: Mapping[str, Json]) -> str:
    """First 16 hexadecimal digits of the SHA-256 of spaces as JSON."""
    return hashlib.sha256(_dumps(spaces).encode()).hexdigest()[:16]


# ------------------------------------------------------------------ writing


def header_line(header: ReplayHeader) -> str:
    """The header as JSON."""
    known = {each.name: getattr(header, each.name) for each in fields(header)}
    if header.game_version is None:
        del known["game_version"]
    return _dumps({"format": FORMAT, "version": VERSION, **known})


def decision_line(decision: Decision) -> str:
    """A decision as JSON."""
    line: dict[str, Json] = {"g": decision.agent_id, "t": decision.step}
    if decision.end is None:
        line["a"] = dict(decision.actions)
    if decision.checksum is not None:
        line["c"] = decision.checksum
    if decision.score is not None:
        line["s"] = decision.score
    line.update(decision.seen)
    if decision.probabilities:
        line["p"] = dict(decision.probabilities)
    if decision.value is not None:
        line["v"] = decision.value
    if decision.end is not None:
        line["end"] = end = {each.name: getattr(decision.end, each.name) for each in fields(End)}
        if not decision.end.cut:
            del end["cut"]
    return _dumps(line)


def failure_line(failure: str) -> str:
    """The line for a failed episode."""
    return _dumps({"failure": failure})


def zipped(lines: Sequence[str]) -> bytes:
    """Lines as gzip; deterministic."""
    return gzip.compress("".join(f"{line}\n" for line in lines).encode(), 9, mtime=0)


def replay_path(path: str | Path) -> Path:
    """Checks the path of a file to write; UsageError unless it is `NAME.replay`."""
    path = Path(path)
    if path.suffix != SUFFIX:
        raise UsageError(f"a replay must be called NAME{SUFFIX}, got {path}")
    return path


def require_replaceable(path: Path) -> None:
    """Raises ReplayError if an existing file, which would be replaced, is not a replay."""
    try:
        with open(path, "rb") as file:
            begin = file.read(_SAMPLE_BYTES)
    except (OSError, ValueError):  # there is none, or writing it will fail too
        return
    with suppress(zlib.error):
        if begin.startswith(_MAGIC):
            begin = zlib.decompressobj(wbits=31).decompress(begin, _SAMPLE_BYTES)
    if begin and FORMAT.encode() not in begin:
        raise ReplayError(f"{path} exists and is not a replay: choose another name")


def write_replay(path: Path, content: bytes) -> None:
    """Writes a file atomically, and only if it can be read again.

    Raises:
        ReplayError: it cannot be written, would be unreadable, or an existing file is not a replay.
    """
    require_replaceable(path)
    if len(content) > _MAX_FILE_BYTES:
        raise ReplayError(
            f"cannot write {path}: a replay can have at most {_MAX_FILE_BYTES} bytes, got "
            f"{len(content)}"
        )
    lines, _ = split_lines(content, str(path))
    header, spaces = parse_header(lines[0], str(path))
    for _ in parse_decisions(lines[1:], header, spaces[1], str(path)):
        pass
    try:
        write_file(path, content)
    except (OSError, ValueError) as error:
        raise ReplayError(f"cannot write {path}: {error}") from error


def _dumps(data: Json) -> str:
    try:
        return json.dumps(data, separators=(",", ":"), allow_nan=False)
    except ValueError as error:
        raise ReplayError(f"a replay can hold only finite numbers: {error}") from error


# ------------------------------------------------------------------ reading


def read_lines(path: Path) -> tuple[list[str], bool]:
    """The complete lines of a file, and whether it was cut off; ReplayError if unreadable."""
    try:
        content = read_file(path, _MAX_FILE_BYTES)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ReplayError(f"cannot read {path}: {reason}") from error
    return split_lines(content, str(path))


def split_lines(content: bytes, name: str) -> tuple[list[str], bool]:
    """The complete lines of gzipped or plain content, and whether it was cut off.

    Raises:
        ReplayError: it is neither, or too large.
    """
    is_cut = False
    if content.startswith(_MAGIC):
        content, is_cut = _unzipped(content, name)
    if content.count(b"[") + content.count(b"{") > _MAX_LISTS:
        raise ReplayError(f"{name} is not a replay: it holds more than {_MAX_LISTS} lists")
    whole, newline, rest = content.rpartition(b"\n")
    try:
        return (whole + newline).decode().splitlines(), is_cut or bool(rest)
    except UnicodeDecodeError as error:
        raise ReplayError(
            f"{name} is not a replay: it does not hold text: {error.reason}"
        ) from error


def _unzipped(content: bytes, name: str) -> tuple[bytes, bool]:
    reader = zlib.decompressobj(wbits=31)
    try:
        lines = reader.decompress(content, _MAX_BYTES)
    except zlib.error as error:
        lines, reason = _up_to_error(content), error
        if not lines:
            raise ReplayError(f"{name} is not a replay: {reason}") from error
        return lines, True
    if reader.unconsumed_tail:
        raise ReplayError(f"{name} is not a replay: it unzips to more than {_MAX_BYTES >> 20} MiB")
    return lines, not reader.eof


def _up_to_error(content: bytes) -> bytes:
    """The part of damaged content that can be unzipped."""
    reader = zlib.decompressobj(wbits=31)
    parts = []
    with suppress(zlib.error):
        for begin in range(0, len(content), 64):
            parts.append(reader.decompress(content[begin : begin + 64], _MAX_BYTES))
    return b"".join(parts)


def parse_header(line: str, name: str) -> tuple[ReplayHeader, Spaces]:
    """Parses the first line of a file.

    Raises:
        ReplayError: not a header of a supported version.
    """
    data = _object(line, f"{name} is not a replay: line 1")
    if data.get("format") != FORMAT:
        raise ReplayError(f"{name} is not a replay: its first line has no format {FORMAT!r}")
    version = data.get("version")
    if type(version) is not int or version < 1:
        raise ReplayError(
            f"{name}, line 1: version must be an integer, 1 or more: got {shown(version)}"
        )
    if version > VERSION:
        raise ReplayError(
            f"{name} has version {version}, but this package reads up to {VERSION}: "
            "install a later release"
        )
    checks: dict[str, Callable[[Any], bool]] = {
        "game": _is_text,
        "source": _is_text,
        "schema": _is_text,
        "episode_seed": lambda value: type(value) is int and value >= 0,
        "num_agents": lambda value: type(value) is int and 1 <= value <= _MAX_AGENTS,
        "spaces": lambda value: isinstance(value, dict),
        "settings": lambda value: isinstance(value, dict),
        "run": lambda value: _is_dict_of(value, int),
        "made_with": lambda value: _is_dict_of(value, str),
        "agents": lambda value: (
            isinstance(value, list) and all(_is_dict_of(each, str) for each in value)
        ),
        "parent": lambda value: value is None or isinstance(value, dict),
        "game_version": lambda value: value is None or type(value) is int or _is_text(value),
    }
    known = {key: data[key] for key in checks if key in data}
    for key in ("game", "episode_seed", "spaces"):
        if key not in known:
            raise ReplayError(f"{name}, line 1: the header has no {key!r}")
    for key, value in known.items():
        if not checks[key](value):
            raise ReplayError(f"{name}, line 1: {key!r} cannot be {shown(value)}")
    header = ReplayHeader(**known)
    if len(header.agents) not in (0, header.num_agents):
        raise ReplayError(
            f"{name}, line 1: expected no names or {header.num_agents} in 'agents', one for each "
            f"of 'num_agents', got {len(header.agents)}"
        )
    try:
        return header, spaces_from_json(known["spaces"])
    except SchemaError as error:
        raise ReplayError(f"{name}, line 1: {error}") from error


def parse_decisions(
    lines: Sequence[str],
    header: ReplayHeader,
    action_space: Mapping[ActionName, ActionSpace],
    name: str,
) -> Iterator[Decision | str]:
    """Parses the lines after the header; yields each decision, and the text of a failure.

    Raises:
        ReplayError: a line is invalid or out of order.
    """
    steps = dict.fromkeys(range(header.num_agents), 0)
    ended = set()
    for i, text in enumerate(lines, 2):
        where = f"{name}, line {i}"
        line = _object(text, where)
        if "failure" in line:
            if not _is_text(line["failure"]):
                raise ReplayError(f"{where}: 'failure' cannot be {shown(line['failure'])}")
            yield str(line["failure"])
            continue
        decision = _decision(line, header, action_space, where)
        agent = decision.agent_id
        if agent in ended:
            raise ReplayError(f"{where}: the episode of agent {agent} has ended before")
        if decision.step != steps[agent]:
            raise ReplayError(
                f"{where}: expected step {steps[agent]} of agent {agent}, got {decision.step}"
            )
        steps[agent] += decision.end is None
        if decision.end is not None:
            ended.add(agent)
        yield decision


def _decision(
    line: dict[str, Any],
    header: ReplayHeader,
    action_space: Mapping[ActionName, ActionSpace],
    where: str,
) -> Decision:

    def require(key: str, fits: bool, expected: str) -> None:
        if not fits:
            raise ReplayError(f"{where}: {key!r} needs {expected}, got {shown(line.get(key))}")

    agent: Any = line.get("g")
    step: Any = line.get("t")
    actions: Any = line.get("a")
    end = line.get("end")
    is_agent = type(agent) is int and 0 <= agent < header.num_agents
    require("g", is_agent, f"an agent from 0 to {header.num_agents - 1}")
    require("t", type(step) is int and step >= 0, "the number of a step")
    if end is None:
        require("a", isinstance(actions, dict), "actions by name")
        for name, value in (actions or {}).items():
            require("a", name in action_space, f"actions among {', '.join(action_space)}")
            problem = action_problem(value, action_space[name])
            require("a", not problem, f"{problem} for {name!r}")
    crc, score, value = (line.get(key) for key in ("c", "s", "v"))
    require("c", crc is None or (type(crc) is int and 0 <= crc < 2**32), "a CRC-32")
    require("s", score is None or is_json_number(score), "a finite number")
    require("v", value is None or is_json_number(value), "a finite number")
    probabilities = line.get("p", {})
    require("p", _are_probabilities(probabilities, action_space), "rows of numbers by action")
    return Decision(
        agent_id=agent,
        step=step,
        actions={} if end is not None else actions,
        checksum=crc,
        score=score,
        seen={key: line[key] for key in ("o", "q", "h", "m") if key in line},
        probabilities=probabilities,
        value=value,
        end=None if end is None else _end(end, where),
    )


def _end(data: Json, where: str) -> End:
    checks: dict[str, Callable[[Any], bool]] = {
        "reward": is_json_number,
        "length": lambda value: type(value) is int and value >= 0,
        "terminated": lambda value: isinstance(value, bool),
        "truncated": lambda value: isinstance(value, bool),
        "metrics": lambda value: (
            isinstance(value, dict) and all(map(is_json_number, value.values()))
        ),
        "cut": lambda value: isinstance(value, bool),
    }
    optional: Mapping[str, Json] = {"metrics": {}, "cut": False}
    for key, check in checks.items():
        if not isinstance(data, dict) or not check(data.get(key, optional.get(key))):
            raise ReplayError(f"{where}: 'end' needs a valid {key!r}, got {shown(data)}")
    return End(**{key: data[key] for key in checks if key in data})


def _are_probabilities(data: Json, action_space: Mapping[ActionName, ActionSpace]) -> bool:
    return isinstance(data, dict) and all(
        name in action_space
        and isinstance(rows, list)
        and all(is_row(row, len(rows[0]) if isinstance(rows[0], list) else 0) for row in rows)
        for name, rows in data.items()
    )


def _object(line: str, where: str) -> dict[str, Any]:
    try:
        data = json.loads(line, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        reason = getattr(error, "msg", error)  # without the line, which is always 1
        reason = "too deeply nested" if isinstance(error, RecursionError) else reason
        raise ReplayError(f"{where} is not JSON: {reason}") from error
    if not isinstance(data, dict):
        raise ReplayError(f"{where} must be an object, got {shown(data)}")
    return data


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a number in JSON")


def _is_text(value: Json) -> bool:
    return isinstance(value, str)


def _is_dict_of(value: Json, kind: type) -> bool:
    return isinstance(value, dict) and all(type(each) is kind for each in value.values())
