"""Files of replays: hostile, truncated, plain, from other versions."""

import gzip
import json
from contextlib import suppress
from functools import cache
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from entity_env import Game, Observation, ReplayError, Turn, UsageError
from entity_env.agents import RandomAgent
from entity_env.core.seeding import EpisodeSeeds
from entity_env.core.spaces import Spaces, spaces_to_json
from entity_env.games import GAMES
from entity_env.replay import Replay, ReplayWriter, record
from entity_env.replay.encoding import actions_to_json, observation_to_json
from entity_env.replay.file import Decision, End, ReplayHeader, split_lines, zipped
from tests.agents.imitation.decisions import episodes


@cache
def replay_of(name: str = "rock_paper_scissors", see: bool = True) -> Replay:
    game: Game = GAMES[name]
    return record(game, *[RandomAgent(seed=i) for i in range(game.num_agents)], seed=1, see=see)


def lines_of(replay: Replay) -> list[str]:
    return gzip.decompress(replay.to_bytes()).decode().splitlines()


def plain(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def pieces(content: bytes) -> tuple[list[str], bool]:
    """The lines of a replay; empty for other content."""
    try:
        return split_lines(content, "x.replay")
    except ReplayError:
        return [], True


def use(content: bytes) -> None:
    """Runs all code that reads a file, which may raise a ReplayError with file or location."""
    problems = []
    try:
        read = Replay.from_bytes(content, "x.replay")
        read.verify(GAMES["rock_paper_scissors"])
        read.turns(GAMES["rock_paper_scissors"])
    except ReplayError as error:
        problems.append(str(error))
    assert all("x.replay" in problem or "agent" in problem for problem in problems)


TEXTS = st.text(st.sampled_from("a\0\n\x1b\x85\u2028\ud800"), max_size=4)
NUMBERS = st.floats() | st.integers(-2, 2**70)


@given(
    found=episodes(),
    texts=st.tuples(TEXTS, TEXTS, TEXTS, TEXTS),
    num_agents=st.sampled_from([0, 1, 2, 2, 2, 3]),
    numbers=st.tuples(NUMBERS, NUMBERS, st.integers(-1, 2**40)),
)
def test_what_cannot_be_read_again_is_not_written(
    tmp_path_factory: pytest.TempPathFactory,
    found: tuple[Spaces, list[list[Turn]]],
    texts: tuple[str, str, str, str],
    num_agents: int,
    numbers: tuple[float, float, int],
) -> None:
    (spaces, runs), (name, agent, key, failure), (score, value, seed) = found, texts, numbers
    header = ReplayHeader(
        name,
        seed,
        spaces_to_json(*spaces),
        agents=[{"name": agent}] * num_agents,
        settings={key: agent},
        num_agents=2,
    )
    lines = [
        Decision(
            turn.agent_id,
            turn.step,
            actions_to_json(turn.actions, turn.observation, spaces[0]),
            score=score,
            seen=observation_to_json(turn.observation, spaces[0]),
            value=value,
            end=None if turn.episode is None else End.of(turn.episode),
        )
        for turn in runs[0]
    ]
    path = tmp_path_factory.mktemp("replays") / "x.replay"
    kept = replay_of()
    kept.save(path)
    with suppress(ReplayError):
        (other := Replay(header, lines, failure=failure)).save(path)
        kept = other
    read = Replay.load(path)
    assert (read.header, read.lines) == (kept.header, kept.lines)
    assert read.failure == kept.failure


def test_a_replay_that_could_not_be_read_is_not_begun(tmp_path: Path) -> None:
    path = tmp_path / "x.replay"
    replay_of().save(path)
    before = path.read_bytes()
    writer = ReplayWriter(path)
    writer.begin_run(GAMES["rock_paper_scissors"], [RandomAgent()], EpisodeSeeds(1), 1)
    with pytest.raises(ReplayError, match="expected no names or 2 in 'agents'"):
        writer(Turn(0, 0, 0.0, Observation(reward=0.0)))
    assert path.read_bytes() == before


def test_the_same_episode_gives_the_same_bytes() -> None:
    game = GAMES["snake"]
    first, second = (record(game, RandomAgent(seed=3), seed=2).to_bytes() for _ in range(2))
    assert first == second


def test_plain_lines_are_read() -> None:
    replay = replay_of()
    assert Replay.from_bytes(plain(lines_of(replay))).to_bytes() == replay.to_bytes()


@given(st.data())
def test_a_cut_file_is_read_as_far_as_it_goes(data: st.DataObject) -> None:
    replay = replay_of()
    content = data.draw(st.sampled_from([replay.to_bytes(), plain(lines_of(replay))]))
    at = data.draw(st.integers(0, len(content) - 1))
    if not pieces(content[:at])[0]:
        with pytest.raises(ReplayError, match="is not a replay"):
            Replay.from_bytes(content[:at])
        return
    read = Replay.from_bytes(content[:at])
    assert read.is_cut or not content[:at].startswith(b"\x1f")
    assert read.lines == replay.lines[: len(read.lines)]


def test_a_wrong_checksum_marks_a_replay_whose_lines_are_all_there() -> None:
    """The checksum is the last 8 bytes; damaged files are unzipped in pieces of 64 bytes."""
    replay = replay_of()
    texts = (f"hung: {'ab' * i}" for i in count())
    kept = (Replay(replay.header, replay.lines, failure=text) for text in texts)
    content = bytearray(next(c for c in (r.to_bytes() for r in kept) if 0 < len(c) % 64 <= 8))
    content[-1] ^= 1
    read = Replay.from_bytes(bytes(content))
    assert read.lines == replay.lines
    assert read.failure
    assert read.is_cut


@given(st.data())
def test_mutated_files_raise_nothing_but_replay_errors(data: st.DataObject) -> None:
    content = bytearray(
        data.draw(st.sampled_from([replay_of().to_bytes(), plain(lines_of(replay_of()))]))
    )
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at] = data.draw(st.integers(0, 255))
    use(bytes(content))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=5,
)


@given(st.data(), JSON)
def test_mutated_values_raise_nothing_but_replay_errors(data: st.DataObject, value: object) -> None:
    lines = lines_of(replay_of())
    i = data.draw(st.integers(0, len(lines) - 1))
    line = json.loads(lines[i])
    line[data.draw(st.sampled_from(sorted(line)))] = value
    try:
        text = json.dumps(line, allow_nan=False)
    except ValueError:  # an infinite number
        return
    use(plain([*lines[:i], text, *lines[i + 1 :]]))


def test_unknown_keys_and_lines_of_later_versions_are_skipped() -> None:
    header, *rest = (json.loads(line) for line in lines_of(replay_of()))
    lines = [json.dumps({**each, "new": [1]}) for each in (header, *rest)]
    assert Replay.from_bytes(plain(lines)).to_bytes() == replay_of().to_bytes()


def changed(line: int, **values: object) -> bytes:
    lines = lines_of(replay_of())
    data = {**json.loads(lines[line]), **values}
    return plain([*lines[:line], json.dumps(data), *lines[line + 1 :]])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "it has no complete line"),
        (b"hello\n", "is not a replay: line 1 is not JSON"),
        (b"[]\n", "line 1 must be an object, got \\[\\]"),
        (b"{}\n", "its first line has no format 'entity-env.replay'"),
        (b"\x1f\x8bxxxx", "is not a replay"),
        (b"\xff\xff\n", "it does not hold text"),
        (
            changed(0, version=2),
            "has version 2, but this package reads up to 1: install a later release",
        ),
        (changed(0, version="1"), "version must be an integer, 1 or more: got '1'"),
        (changed(0, episode_seed=-1), "line 1: 'episode_seed' cannot be -1"),
        (changed(0, num_agents=0), "line 1: 'num_agents' cannot be 0"),
        *(
            (
                changed(0, agents=[{"name": "a"}] * n),
                f"expected no names or 2 in 'agents', one for each of 'num_agents', got {n}",
            )
            for n in (1, 3)
        ),
        (changed(0, spaces={}), "line 1: spaces in JSON need a list under 'entities', got None"),
        (changed(1, g=2), "line 2: 'g' needs an agent from 0 to 1, got 2"),
        (changed(1, t=1), "line 2: expected step 0 of agent 0, got 1"),
        (changed(1, a={"Fly": 1}), "line 2: 'a' needs actions among"),
        (changed(1, a=[]), "line 2: 'a' needs actions by name"),
        (changed(1, c=2**32), "line 2: 'c' needs a CRC-32, got 4294967296"),
        (changed(1, s=True), "line 2: 's' needs a finite number"),
        (changed(1, p={"Throw": [[1], [1, 0]]}), "line 2: 'p' needs rows of numbers by action"),
        (changed(1, p={"Throw": [[1e300]]}), "line 2: 'p' needs rows of numbers by action"),
        (changed(-1, end={"reward": 1}), "'end' needs a valid 'length'"),
        (plain([*lines_of(replay_of()), lines_of(replay_of())[-1]]), "has ended before"),
    ],
)
def test_a_broken_file_says_what_is_wrong(content: bytes, message: str) -> None:
    with pytest.raises(ReplayError, match=message):
        Replay.from_bytes(content, "x.replay")


def test_agents_need_no_names() -> None:
    assert Replay.from_bytes(changed(0, agents=[])).header.agents == []


def test_nested_json_is_refused() -> None:
    lines = [lines_of(replay_of())[0], '{"g":' + "[" * 100_000]
    with pytest.raises(ReplayError, match="line 2 is not JSON"):
        Replay.from_bytes(plain(lines))


def test_a_file_that_unzips_to_gigabytes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("entity_env.replay.file._MAX_BYTES", 10_000)
    with pytest.raises(ReplayError, match="it unzips to more than"):
        split_lines(zipped(["0" * 20_000]), "x.replay")


def test_a_file_of_many_lists_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    content = replay_of().to_bytes()
    count = sum(line.count("[") + line.count("{") for line in lines_of(replay_of()))
    monkeypatch.setattr("entity_env.replay.file._MAX_LISTS", count)
    Replay.from_bytes(content)
    monkeypatch.setattr("entity_env.replay.file._MAX_LISTS", count - 1)
    with pytest.raises(ReplayError, match="it holds more than"):
        Replay.from_bytes(content)


def test_only_replays_are_replaced(tmp_path: Path) -> None:
    path = tmp_path / "x.replay"
    replay_of().save(path)
    replay_of("snake").save(path)
    assert Replay.load(path).header.game == "snake"
    for content in (b"my thesis", gzip.compress(b"my thesis")):
        path.write_bytes(content)
        with pytest.raises(ReplayError, match="exists and is not a replay: choose another name"):
            replay_of().save(path)
        with pytest.raises(ReplayError, match="exists and is not a replay"):
            GAMES["snake"].run(RandomAgent(seed=1), watch=ReplayWriter(path))
        assert path.read_bytes() == content


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(ReplayError, match=r"cannot read .*x.replay: No such file"):
        Replay.load(tmp_path / "x.replay")
    with pytest.raises(ReplayError, match="expected a regular file, got a folder"):
        Replay.load(tmp_path)
    with pytest.raises(UsageError, match=r"must be called NAME\.replay"):
        replay_of().save(tmp_path / "x.json")
    (tmp_path / "file").touch()
    with pytest.raises(ReplayError, match="cannot write"):
        replay_of().save(tmp_path / "file" / "x.replay")
