"""The client for JavaScript plays the episodes of its Python twins."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import socket
import struct
import subprocess
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from random import Random
from typing import Any, get_args

import numpy as np
import pytest

from entity_env import Game, SplitMix64
from entity_env.agents import random_actions
from entity_env.check.program import program_violations
from entity_env.core.vec_obs import VecObs
from entity_env.errors import WorkerError
from entity_env.vec import Autoreset, VecEnv
from entity_env.vec.external.game import ExternalGame
from entity_env.vec.external.messages import HEADER, MAGIC, Kind
from entity_env.vec.external.program import Link
from tests.vec.external.test_c_fuzz import Message, answered, mutated, packed, recorded
from tests.vec.external.twins import (
    GAMES,
    kinds,
    parts,
    require_equal,
    require_failure,
    require_verified,
    roads,
    twin_of,
)

FOLDER = Path(__file__).parents[3] / "clients" / "javascript"
ODD = Path(__file__).with_name("odd_games.mjs")
PARTS = ODD.with_name("parts.mjs")
pytestmark = [
    pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed"),
    pytest.mark.slow,
]


def game_of(name: str, link: Link = "unix", **settings: Any) -> ExternalGame:  # noqa: ANN401
    command = ["node", str(FOLDER / "games" / f"{name}.mjs")]
    return ExternalGame(command, link=link, **settings)


@pytest.mark.parametrize("autoreset", get_args(Autoreset))
@pytest.mark.parametrize("name", GAMES)
def test_it_equals_its_twin(name: str, autoreset: Autoreset) -> None:
    require_equal(game_of(name), twin_of(name), autoreset)


@pytest.mark.parametrize("name", GAMES)
def test_replays_are_those_of_its_twin(name: str) -> None:
    require_verified(game_of(name))


@pytest.mark.parametrize("link", get_args(Link))
def test_every_link(link: Link) -> None:
    twin = twin_of("snake").with_settings(board_size=5)
    require_equal(game_of("snake", link, board_size=5), twin, "same_step", num_steps=60)


@pytest.mark.parametrize("autoreset", get_args(Autoreset))
def test_actions_of_all_kinds(autoreset: Autoreset) -> None:
    require_equal(odd("kinds"), kinds, autoreset)


@pytest.mark.parametrize("autoreset", get_args(Autoreset))
@pytest.mark.parametrize("twin", [parts, roads], ids=["parts", "roads"])
def test_decisions_in_several_parts_and_relations(twin: Game, autoreset: Autoreset) -> None:
    require_equal(ExternalGame(["node", str(PARTS), twin.name]), twin, autoreset)


@pytest.mark.parametrize("word", ["kinds", "parts", "roads"])
def test_it_keeps_the_contract(word: str) -> None:
    game = ExternalGame(["node", str(ODD if word == "kinds" else PARTS), word])
    assert not list(program_violations(game, 1, lambda stage: None, math.inf))


def test_settings_that_it_refuses() -> None:
    message = require_failure(game_of("snake"), board_size=1)
    assert "board_size must be at least 2" in message


def node(code: str) -> Any:  # noqa: ANN401 - what it prints as JSON
    """Runs a module in the folder of the client."""
    done = subprocess.run(
        ["node", "--input-type=module", "--eval", code],
        capture_output=True,
        text=True,
        cwd=FOLDER,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_random_integers_up_to_32_bits() -> None:
    limits = [1, 2, 10, 2**21, 2**21 + 1, 3**20, 2**31 + 1, 2**32 - 1, 2**32]
    found = node(
        "import {Random} from './entity-env.mjs'; const random = new Random(2n ** 64n - 5n);"
        f"console.log(JSON.stringify({limits}.flatMap(limit =>"
        " Array.from({length: 200}, () => random.below(limit)))))"
    )
    random = SplitMix64(2**64 - 5)
    assert found == [random.randrange(limit) for limit in limits for _ in range(200)]


def test_the_module_needs_no_process() -> None:
    """As in a browser, where only `serve` is missing."""
    found = node(
        "const {log} = console; delete globalThis.process; delete globalThis.Buffer;"
        "const {Game, Obs, Random, categorical, serve} = await import('./entity-env.mjs');"
        "const actions = {A: categorical('x')};"
        "const game = new Game({name: 'a', play() {}, entities: {}, actions});"
        "const error = await serve(game).catch(error => error.message);"
        "log(JSON.stringify([game.name, new Random(1).below(9), error]))"
    )
    assert found[0] == "a"
    assert "ENTITY_ENV_ADDRESS is not set" in found[2]
    source = (FOLDER / "entity-env.mjs").read_text()
    assert not re.findall(r"""import[^;\n]*["']node:""", source)


# ------------------------------------------------------------------ games with an error


def odd(*words: str, link: Link = "unix") -> ExternalGame:
    return ExternalGame(["node", str(ODD), *words], link=link)


def played(vec: VecEnv, num_steps: int) -> VecObs:
    """The observations after random actions."""
    rng = np.random.default_rng(0)
    obs = vec.reset()
    for _ in range(num_steps):
        obs = vec.act(random_actions(obs, vec.action_space(), rng))
    return obs


def failure(word: str) -> WorkerError:
    """The error of a game."""
    with VecEnv(odd(word), 4, seed=1) as vec, pytest.raises(WorkerError) as caught:
        played(vec, 9)
    return caught.value


WRONG = {
    "not an Obs": "shown an object, expected an Obs: write new Obs(score).entities(...)",
    "a score": "shown 5, expected an Obs: write new Obs(5)",
    "no action": "act needs the name of an action: Move, Pick, Mode, Push",
    "unknown action": 'asks for the action "Jump", expected Move, Pick, Mode, Push',
    "action twice": "act asks for Move twice",
    "score NaN": "the score must be a finite number, got NaN",
    "score text": 'the score must be a finite number, got "1"',
    "score huge": "the score must be a finite number, got 1e+301",
    "unknown type": 'type "Tree", which the game has not declared; declared are Dot, Rock, Mark',
    "not a list": 'expected an array of entities of the type "Rock", got an object',
    "missing feature": "size of Rock 1 must be a finite number, got undefined: give each Rock size",
    "feature null": "size of Rock 0 must be a finite number, got null",
    "feature NaN": "size of Rock 0 must be a finite number, got NaN",
    "feature infinite": "size of Rock 0 must be a finite number, got -Infinity",
    "feature beyond float32": "size of Rock 0 must be a finite number, got 1e+39",
    "feature text": 'size of Rock 0 must be a finite number, got "3"',
    "feature bigint": "size of Rock 0 must be a finite number, got 3n",
    "array as entity": "Rock 0 must be an object, got [1]: give each Rock size",
    "array without features": "Mark 0 must be an object, got an array of 0",
    "number as entity": "Rock 0 must be an object, got 7",
    "null as entity": "Rock 0 must be an object, got null",
    "too many entities": "4 entities of the type Rock, more than its maxEntities, 3",
    "globals": "the game has no globalFeatures",
    "no actors": "Move asks every actor, but the observation has none: add them with obs.actors",
    "mask action": 'a mask or actors for the action "Jump"',
    "actor action": 'a mask or actors for the action "Jump"',
    "mask length": "the mask of Mode needs 2 flags, one per label, got 1",
    "mask flat": "the mask of Move needs a list of flags for each of 1 actors, got [true, false]",
    "mask rows": "the mask of Move needs a list of flags for each of 1 actors, got an array of 2",
    "mask value": 'the mask of Move for actor 0 must have booleans, got "no" at 1',
    "mask sparse": "the mask of Mode must have booleans, got undefined at 0",
    "mask none": "the mask of Mode allows no choice",
    "mask none for actor": "the mask of Move for actor 0 allows no choice",
    "mask of actees": "the mask of Pick for actor 0 needs 1 flags, one per Rock, got 2",
    "mask continuous": "Push is continuous: it has no mask",
    "visible length": "visible of Dot needs 1 flags, one per entity, got 2",
    "visible type": 'type "Tree", which the game has not declared',
    "metric name": 'the metric "height" is not declared',
    "metric NaN": "the metric speed must be a finite number, got NaN",
    "over: not an Obs": "shown an object, expected an Obs",
    "over: option": "unknown option truncate; it has truncated",
    "over: truncated": "truncated must be a boolean, got 1",
    "over: positional": "gameOver(obs, { truncated }) expects an object, got true",
    "over: mask without actors": "Move asks every actor, but the observation has none",
    "over: entity": "size of Rock 0 must be a finite number, got undefined",
    "random: below": "Random.below: expected an integer from 1 to 2^32, got 0",
    "random: fraction": "Random.below: expected an integer from 1 to 2^32, got 1.5",
    "random: choice": "Random.choice: expected an array with items, got an array of 0",
    "random: seed": 'the seed must be a BigInt or an integer, got "7"',
    "act twice": "agent 0: act was called before its last act was answered",
    "over while asked": "agent 0: gameOver was called before its last act was answered",
    "act after over": "agent 0: act was called after gameOver",
    "over twice": "agent 0: gameOver was called twice",
}


def test_wrong_calls_raise_and_change_nothing() -> None:
    """All in one episode, which then continues: nothing else is sent, and it ends as it should."""
    with VecEnv(odd("misuse"), 2, seed=1) as vec:
        obs = vec.act(random_actions(vec.reset(), vec.action_space(), np.random.default_rng(0)))
        assert obs.reward.tolist() == [1.0, 1.0]
        assert obs.features["Dot"].values.tolist() == [[0.5], [0.5]]
        for name in ("Rock", "Mark"):
            assert not len(obs.features[name].values)
        assert [len(mask.actors.values) for mask in obs.action_masks.values()] == [2, 0, 0, 0]
    text = str(failure("misuse"))
    found, _ = json.JSONDecoder().raw_decode(text[text.index("found ") + len("found ") :])
    assert list(found) == list(WRONG)
    for name, message in WRONG.items():
        assert message in found[name], name
        assert re.match(r"(Type)?Error: ", found[name]), name


def test_an_error_after_the_end_of_all_agents_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    with VecEnv(odd("late"), 2, seed=1) as vec:
        obs = vec.act(random_actions(vec.reset(), vec.action_space(), np.random.default_rng(0)))
        assert obs.terminated.all()
        assert not vec.statistics().num_restarts
    assert capfd.readouterr().err.count("entity-env: Error: after the end\n") == 2


def test_games_that_are_not_defined_correctly() -> None:
    count = len(
        re.findall(r"^  \(\) => (?:\(\{ ...valid|undefined)", ODD.read_text(), re.MULTILINE)
    )
    assert count == 38
    for i in range(count):
        done = subprocess.run(
            ["node", str(ODD), "defined", str(i)],
            capture_output=True,
            text=True,
            env={**os.environ, "ENTITY_ENV_ADDRESS": "unix:/none"},
            timeout=30,
        )
        assert done.returncode == 1
        assert re.search(r"^TypeError: .*(expect|must)", done.stderr, re.MULTILINE) or (
            re.search(r"^TypeError: .*unknown option", done.stderr, re.MULTILINE)
        ), done.stderr


@pytest.mark.parametrize(
    ("word", "message", "where"),
    [
        ("fails", "Wheel: came \ufffd off", "odd_games.mjs"),
        ("throws_text", 'Error: "flat"', ""),
        ("throws_null", "Error: null", ""),
        ("throws_odd", "the game threw a value that is not an Error", ""),
        ("returns", "play returned, but agent 0 has not ended its episode: call gameOver", ""),
        ("unawaited", "play returned, but agent 0 waits for an answer: await each act", ""),
        ("promised", "reading 'x') (agent 0 waits for an answer: await each act)", "odd_games.mjs"),
        ("never_asks", "play returned without an episode", ""),
        ("not_async", "play returned without an episode", ""),
        ("stuck", "play neither asks an agent nor returns", ""),
        ("stuck_later", "play neither asks an agent nor returns", ""),
        ("deadlock", "play neither asks an agent nor returns", ""),
    ],
)
def test_a_game_that_fails(word: str, message: str, where: str) -> None:
    error = failure(word)
    assert message in str(error)
    assert where in str(error)
    assert (error.env_id, error.episode) == (0, 0)


@pytest.mark.parametrize("word", ["fails", "returns", "stuck", "deadlock"])
def test_the_next_episode_follows_a_failure(word: str) -> None:
    with VecEnv(odd(word), 4, seed=1, on_error="restart") as vec:
        obs = played(vec, 6)
        assert len(obs.features["Dot"].values) == 4 * vec.num_agents
        failed = [each for each in obs.episodes if each.metrics == {"error": 1.0}]
        assert {each.agent_id for each in failed} == set(range(vec.num_agents))
        assert max(each.number for each in failed) >= 2


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("forgotten", "a promise of the game failed, and no code awaits it: Wheel: lost"),
        ("in_timer", "an error outside of play: Wheel: late"),
    ],
)
def test_an_error_that_belongs_to_no_copy(word: str, message: str) -> None:
    """The program cannot know whose it is, and ends with the reason and the stack."""
    text = str(failure(word))
    assert message in text
    assert "odd_games.mjs" in text


def test_agents_that_ask_late() -> None:
    """Games that wait for timers, and agents that ask and end while the host decides."""
    with VecEnv(odd("slow"), 5, seed=1) as vec:
        played(vec, 60)


def test_what_is_shown_is_copied_at_the_call() -> None:
    with VecEnv(odd("changes"), 3, seed=1) as vec:
        rng = np.random.default_rng(0)
        obs = vec.reset()
        for step in range(12):
            x = obs.features["Dot"].values
            assert x.shape == (6, 1)
            assert np.isfinite(x).all()
            assert obs.features["Rock"].values.ravel().tolist() == [1.0, 2.0] * 3
            assert len(obs.action_masks["Pick"].actors.values) == 6
            if step % 4:
                assert obs.reward.tolist() == [1.0] * 3
            obs = vec.act(random_actions(obs, vec.action_space(), rng))
        assert obs.terminated.all()


def test_a_game_that_does_not_return() -> None:
    """It is left suspended when it has to return, however often it asks."""
    with VecEnv(odd("deaf"), 2, seed=1) as vec:
        for _ in range(3):
            played(vec, 2)


@pytest.mark.parametrize("link", get_args(Link))
def test_a_game_that_prints_and_reads(link: Link, capfd: pytest.CaptureFixture[str]) -> None:
    with VecEnv(odd("prints", link=link), 2, seed=1) as vec:
        played(vec, 7)
    printed = capfd.readouterr()
    text = printed.err if link == "stdio" else printed.out
    for line in ("printed before the first message", "printed in a game", "without console"):
        assert line in text
    assert link != "stdio" or not printed.out


def test_what_hello_and_ready_say() -> None:
    game = odd("dots")
    hello = game.hello
    assert (hello.doc, hello.version) == ("Move the dot.", 3)
    assert hello.settings == {"size": 3, "speed": 0.5, "name": "x", "fast": False}
    assert game.ready.max_entities == {"Rock": 3}
    assert game.ready.metrics == ("speed",)


# ------------------------------------------------------------------ messages of the host

START = {"protocol": 1, "num_envs": 2, "first_env": 0, "hold": False}
SETTINGS = {"size": 3, "speed": 0.5, "name": "x", "fast": False}
RESET = (int(Kind.RESET), struct.pack("<5Q", 2, 0, 1, 7, 8))
ACT_MOVE = (int(Kind.ACT), struct.pack("<4Q", 7, 8, 0, 1))


def start(**changes: object) -> Message:
    text = json.dumps({**START, "settings": SETTINGS, **changes}).encode()
    return int(Kind.START), text + b" " * (-len(text) % 8)


def header(kind: int, size: int, magic: bytes = MAGIC) -> bytes:
    return HEADER.pack(magic, kind, size)


def words_of(kind: Kind, *words: int) -> bytes:
    return packed([(int(kind), struct.pack(f"<{len(words)}Q", *words))])


BEGIN = packed([start(), RESET])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (header(2, 0, b"HTTP") + bytes(64), 'expected the bytes "ENE1", got "HTTP"'),
        (words_of(Kind.RESET, 1, 0, 1), "expected kind START, got RESET"),
        (packed([ACT_MOVE]), "expected kind START, got ACT"),
        (header(77, 8), "expected kind START, got 77"),
        (header(2, 2**62), "must have 0 to 1048576 bytes, a multiple of 8: got 461168601842738"),
        (header(2, 2**20 + 8), "must have 0 to 1048576 bytes, a multiple of 8: got 1048584"),
        (header(2, 9), "a multiple of 8: got 9"),
        (packed([(2, b'{"proto:')]), "message 1 (START): Unterminated string"),
        (packed([(2, b"\xff" * 8)]), "message 1 (START): "),
        (packed([(2, b"[[[[" * 2000)]), "message 1 (START): "),
        (packed([(2, b"[1, 2]  ")]), "must be a JSON object, got [1, 2]"),
        (packed([start(protocol=99)]), "expected version 1 of the protocol, got 99"),
        (packed([start(num_envs=0)]), "num_envs must be an integer from 1 to 1048576, got 0"),
        (packed([start(num_envs=2**40)]), "num_envs must be an integer from 1 to 1048576, got 10"),
        (packed([start(num_envs=1.5)]), "num_envs must be an integer from 1 to 1048576, got 1.5"),
        (packed([start(num_envs="2")]), 'num_envs must be an integer from 1 to 1048576, got "2"'),
        (packed([start(first_env=-1)]), "first_env must be an integer from 0, got -1"),
        (packed([start(hold=1)]), "hold must be true or false, got 1"),
        (packed([start(settings=[])]), "settings must be a JSON object, got an array of 0"),
        (packed([start(settings={"x": 1})]), 'no setting "x"; it has size, speed, name, fast'),
        (packed([start(settings={"__proto__": 1})]), 'the game has no setting "__proto__"'),
        (packed([start(settings={"size": 1.5})]), "the setting size must be an integer, got 1.5"),
        (packed([start(settings={"speed": "x"})]), 'the setting speed must be a number, got "x"'),
        (packed([start(settings={"name": 7})]), "the setting name must be a string, got 7"),
        (packed([start(settings={"fast": None})]), "the setting fast must be a boolean, got null"),
        (packed([start(), start()]), "expected kind RESET, got START"),
        (packed([start(), ACT_MOVE]), "expected kind RESET, got ACT"),
        (packed([start()]) + words_of(Kind.RESET, 1, 0, 5), "must have all 2 copies, got 1"),
        (
            packed([start()]) + words_of(Kind.RESET, 2, 0, 2, 5, 5),
            "must be 0 to 1, increasing: got 2",
        ),
        (
            packed([start()]) + words_of(Kind.RESET, 2, 1, 0, 5, 5),
            "must be 0 to 1, increasing: got 0",
        ),
        (packed([start()]) + words_of(Kind.RESET, 2, 0, 2**63, 5, 5), "increasing: got -92233720"),
        (packed([start()]) + words_of(Kind.RESET, 2**60, 0, 1, 5, 5), "number of copies"),
        (packed([start()]) + header(4, 48), "must have 24 to 40 bytes, a multiple of 8: got 48"),
        (BEGIN + header(4, 256 << 20), "must have 24 to 40 bytes"),
        (BEGIN + words_of(Kind.RESET, 0, 0, 0), "number of copies"),
        (BEGIN + header(5, 24), "message 2 (ACT): the payload must have 32 bytes"),
        (BEGIN + header(5, 256 << 20), "must have 32 bytes, a multiple of 8: got 268435456"),
        (BEGIN + words_of(Kind.ACT, 7, 8, 0, 2), "a choice for Move must be 0 to 1, got 2"),
        (BEGIN + words_of(Kind.ACT, 7, 8, 2**32, 1), "a choice for Move must be 0 to 1, got 42949"),
        (
            BEGIN + words_of(Kind.ACT, 7, 8, 2**64 - 1, 1),
            "a choice for Move must be 0 to 1, got -1",
        ),
        (BEGIN + header(8, 8) + bytes(8), "expected kind RESET or ACT, got CLOSE"),
        (BEGIN[:-8], "the connection ended after 48 bytes of the next message"),
    ],
)
def test_invalid_messages_end_the_program(data: bytes, message: str) -> None:
    done = answered(["node", "--max-old-space-size=48", str(ODD), "dots"], data)
    lines = done.stderr.decode().splitlines()
    assert done.returncode == 1
    assert len(lines) == 1, lines
    assert message in lines[0]
    assert message.encode().split(b'"')[0] in done.stdout


def test_messages_in_pieces_and_several_at_once() -> None:
    """A host that does not wait for answers gets them all, however the bytes are divided."""
    data = packed([start(), RESET, *[ACT_MOVE] * 6, (int(Kind.RESET), RESET[1]), ACT_MOVE])
    whole = _pieces([data])
    assert len(whole) == 11
    assert _pieces([data[i : i + 7] for i in range(0, len(data), 7)]) == whole
    assert _pieces([data[:3], data[3:100], data[100:]]) == whole


def _pieces(parts: Sequence[bytes]) -> list[bytes]:
    """The answers to these bytes."""
    env = {**os.environ, "ENTITY_ENV_ADDRESS": "stdio", "ENTITY_ENV_TOKEN": "abc"}
    with subprocess.Popen(
        ["node", str(ODD), "dots"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        found = [_answer(process.stdout)]
        assert b'"token":"abc"' in found[0]
        for part in parts:
            process.stdin.write(part)
            process.stdin.flush()
        found += [_answer(process.stdout) for _ in range(10)]
        process.stdin.write(packed([(int(Kind.CLOSE), b"")]))
        process.stdin.flush()
        assert process.stdout.read() == b""
        assert process.wait(10) == 0
    return found


def _answer(stream: Any) -> bytes:  # noqa: ANN401 - a pipe
    head = stream.read(HEADER.size)
    _, _, size = HEADER.unpack(head)
    return bytes(head + stream.read(size))


def test_a_host_that_reads_late() -> None:
    """Answers that do not fit the pipe are sent when it has room, unchanged."""
    count = 40_000
    reset = struct.pack(f"<{2 * count + 1}Q", count, *range(count), *range(count))
    act = struct.pack(f"<{2 * count}Q", *range(count), *[1] * count)
    data = packed([start(num_envs=count), (4, reset), (5, act), (5, act)])
    env = {**os.environ, "ENTITY_ENV_ADDRESS": "stdio", "ENTITY_ENV_TOKEN": ""}
    done = subprocess.run(
        ["sh", "-c", f"node {ODD} dots | (sleep 0.5; cat)"],
        input=data,
        capture_output=True,
        env=env,
    )
    at, sizes = 0, []
    while at < len(done.stdout):
        magic, _, size = HEADER.unpack_from(done.stdout, at)
        assert magic == MAGIC
        at += HEADER.size + size
        sizes.append(size)
    assert at == len(done.stdout)
    assert len(sizes) >= 3
    assert sizes[2] > 40 * count


@pytest.mark.parametrize("word", ["kinds", "roads", "snake", "multi_snake"])
def test_mutated_messages(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = {"kinds": ODD, "roads": PARTS}.get(word, FOLDER / "games" / f"{word}.mjs")
    words = ["node", str(path), *([word] if word in ("kinds", "roads") else [])]
    messages = recorded(ExternalGame(words), monkeypatch)
    rng = Random(7)
    for _ in range(25):
        done = answered(words, mutated(rng, messages))
        assert len(done.stderr.splitlines()) <= 1, done.stderr


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("", "expected stdio, unix:PATH or tcp:HOST:PORT"),
        ("http://x", "expected stdio, unix:PATH or tcp:HOST:PORT"),
        ("tcp:127.0.0.1:x", "expected stdio, unix:PATH or tcp:HOST:PORT"),
        ("tcp:127.0.0.1:99999", "99999"),
        ("unix:/none/socket", "ENOENT"),
        ("stdio", "cannot use the address"),
    ],
)
def test_an_address_that_cannot_be_used(address: str, message: str, tmp_path: Path) -> None:
    with (tmp_path / "input").open("w+b") as file:  # neither a pipe nor a socket
        done = subprocess.run(
            ["node", str(ODD), "dots"],
            stdin=file,
            capture_output=True,
            text=True,
            env={**os.environ, "ENTITY_ENV_ADDRESS": address, "ENTITY_ENV_TOKEN": ""},
            timeout=30,
        )
    assert done.returncode == 1
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr


def test_a_program_that_is_started_first(tmp_path: Path) -> None:
    """Without a token, it tries to connect until the host listens."""
    path = tmp_path / "s"
    env = {**os.environ, "ENTITY_ENV_ADDRESS": f"unix:{path}"}
    env.pop("ENTITY_ENV_TOKEN", None)
    with (
        subprocess.Popen(["node", str(ODD), "dots"], env=env) as process,
        socket.socket(socket.AF_UNIX) as server,
    ):
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        server.bind(str(path))
        server.listen(1)
        server.settimeout(30)
        connection, _ = server.accept()
        with connection, connection.makefile("rb") as stream:
            assert b'"token":""' in _answer(stream)
        assert process.wait(10) == 0


def test_the_package_has_the_version_and_all_names() -> None:
    package = json.loads((FOLDER / "package.json").read_text())
    assert package["version"] == metadata.version("entity-env")
    exported = re.findall(
        r"^export (?:async )?(?:class|const|function) (\w+)",
        (FOLDER / "entity-env.mjs").read_text(),
        re.MULTILINE,
    )
    declared = (FOLDER / "entity-env.d.mts").read_text()
    assert len(exported) == 10
    for name in exported:
        assert re.search(rf"^export (?:class|function) {name}\b", declared, re.MULTILINE), name
