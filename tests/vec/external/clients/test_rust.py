"""The client for Rust plays the episodes of its Python twins, and reports what games do wrong."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import socket
import struct
import subprocess
import tomllib
from importlib import metadata
from pathlib import Path
from random import Random
from typing import Any, get_args

import numpy as np
import pytest

from entity_env import Game
from entity_env.agents import random_actions
from entity_env.check.program import program_violations
from entity_env.errors import WorkerError
from entity_env.vec import Autoreset, ExternalGame, VecEnv
from entity_env.vec.external.messages import HEADER, MAGIC, Kind, MessageError
from entity_env.vec.external.program import Link
from tests.vec.external.test_c_fuzz import (
    NUM_CASES,
    REFUSED,
    answered,
    mutated,
    packed,
    recorded,
    start_with,
)
from tests.vec.external.twins import (
    CROWDED,
    GAMES,
    acted,
    kinds,
    parts,
    require_equal,
    require_failure,
    require_next_episodes,
    require_verified,
    roads,
    twin_of,
)

FOLDER = Path(__file__).parents[4] / "clients" / "rust"
MAX_MEMORY_KB = 64 * 1024
pytestmark = [
    pytest.mark.skipif(shutil.which("cargo") is None, reason="cargo is not installed"),
    pytest.mark.slow,
]


def readme_game() -> str:
    """The program in the README."""
    found = re.search(r"```rust\n(.*?)```", (FOLDER / "README.md").read_text(), re.DOTALL)
    assert found is not None
    return found[1]


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all games, compiled from a copy of the crate."""
    folder = tmp_path_factory.mktemp("rust")
    crate = folder / "crate"
    shutil.copytree(FOLDER, crate, ignore=shutil.ignore_patterns("target"))
    shutil.copy(Path(__file__).with_name("odd_games.rs"), crate / "examples")
    (crate / "examples" / "readme.rs").write_text(readme_game())
    command = ["cargo", "build", "--release", "--offline", "--examples", "--quiet"]
    target = folder / "target"
    env = {**os.environ, "CARGO_TARGET_DIR": str(target), "RUSTFLAGS": "-D warnings"}
    done = subprocess.run(command, cwd=crate, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return target / "release" / "examples"


def odd(programs: Path, word: str, link: Link = "unix", **settings: Any) -> ExternalGame:  # noqa: ANN401
    return ExternalGame([str(programs / "odd_games"), word], link=link, **settings)


# ------------------------------------------------------------------------------------- equality


@pytest.mark.parametrize("autoreset", get_args(Autoreset))
@pytest.mark.parametrize("name", GAMES)
def test_it_equals_its_twin(name: str, autoreset: Autoreset, programs: Path) -> None:
    require_equal(ExternalGame([str(programs / name)]), twin_of(name), autoreset)


@pytest.mark.parametrize("name", GAMES)
def test_replays_are_those_of_its_twin(name: str, programs: Path) -> None:
    require_verified(ExternalGame([str(programs / name)]))


@pytest.mark.parametrize("autoreset", get_args(Autoreset))
@pytest.mark.parametrize("settings", CROWDED)
def test_crowded_boards(settings: dict[str, int], autoreset: Autoreset, programs: Path) -> None:
    game = ExternalGame([str(programs / "multi_snake")]).with_settings(**settings)
    twin = twin_of("multi_snake").with_settings(**settings)
    require_equal(game, twin, autoreset, num_steps=400)


@pytest.mark.parametrize("autoreset", get_args(Autoreset))
def test_actions_of_all_kinds(autoreset: Autoreset, programs: Path) -> None:
    require_equal(odd(programs, "kinds"), kinds, autoreset)


@pytest.mark.parametrize("autoreset", get_args(Autoreset))
@pytest.mark.parametrize("twin", [parts, roads], ids=["parts", "roads"])
def test_decisions_in_several_parts_and_relations(
    twin: Game, autoreset: Autoreset, programs: Path
) -> None:
    require_equal(odd(programs, twin.name), twin, autoreset)


@pytest.mark.parametrize("link", get_args(Link))
def test_every_link(link: Link, programs: Path) -> None:
    game = ExternalGame([str(programs / "snake")], link=link, board_size=3)
    twin = twin_of("snake").with_settings(board_size=3)
    require_equal(game, twin, "same_step")


def test_the_game_in_the_readme(programs: Path) -> None:
    rng = np.random.default_rng(0)
    with VecEnv(ExternalGame([str(programs / "readme")], turns=3), 4) as vec:
        obs = vec.reset()
        for _ in range(3):
            assert not obs.terminated.any()
            obs = vec.act(random_actions(obs, vec.action_space(), rng))
        assert obs.terminated.all()


def test_it_has_the_version_of_the_package() -> None:
    manifest = tomllib.loads((FOLDER / "Cargo.toml").read_text())
    assert manifest["package"]["version"] == metadata.version("entity-env")
    assert not manifest["dependencies"]


# ------------------------------------------------------------------------------------- settings


def test_settings_of_all_types(programs: Path) -> None:
    game = odd(programs, "settings")
    defaults = {name: each.default for name, each in game.parameters.items()}
    assert defaults == {"size": 3, "wind": 1.0, "is_night": False, "level": 'easy "peasy"'}
    game = game.with_settings(size=255, wind=2.5, is_night=True, level="é\n")
    with VecEnv(game, 1) as vec:
        obs = acted(vec, vec.reset(), 2)
        [episode] = obs.episodes
        assert episode.metrics == {"size": 255, "wind": 2.5, "is_night": 1, "level": 3}


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("snake", {"board_size": 1}, "board_size must be from 2 to 1000"),
        ("snake", {"board_size": -1}, "the setting board_size must be an integer from 0 to"),
        ("cherry_pick", {"num_good": 0}, "num_good and num_bad must be at least 1"),
        ("cherry_pick", {"num_bad": 2**32}, "num_bad must be an integer from 0 to 4294967295"),
        ("multi_snake", {"board_size": 0}, "board_size must be from 1 to 1000"),
        ("multi_snake", {"max_snake_length": 1}, "max_snake_length 2"),
        ("multi_snake", {"num_snakes": 2**63}, "too small for the snakes and their food"),
    ],
)
def test_settings_that_it_refuses(
    name: str, settings: dict[str, int], message: str, programs: Path
) -> None:
    game = ExternalGame([str(programs / name)])
    assert message in require_failure(game, **settings)


# --------------------------------------------------------------------------- games with an error


@pytest.mark.parametrize(
    ("word", "step", "message"),
    [
        ("fails", 2, 'a "wheel"\n\tcame off: é'),
        ("panics_oddly", 2, "the game panicked with a value that is not a text"),
        ("returns", 2, "play returned, but an agent has not ended its episode: call game_over"),
        ("awaits", 2, "play awaits something that is not an answer of Agent::act"),
        ("fails_at_once", 0, "no wheels"),
    ],
)
def test_a_game_that_fails(word: str, step: int, message: str, programs: Path) -> None:
    with VecEnv(odd(programs, word), 4, seed=1) as vec:
        with pytest.raises(WorkerError) as caught:
            acted(vec, vec.reset(), 9)
        error = caught.value
        assert message in str(error)
        assert (error.env_id, error.episode, error.step) == (0, 0, step)
        has_panicked = word not in ("returns", "awaits")
        assert ("odd_games.rs:" in error.game_traceback) == has_panicked
        if step:
            obs = vec.reset()
            assert len(obs.features["Dot"].values) == 4


@pytest.mark.parametrize("word", ["fails", "returns", "awaits"])
def test_the_next_episode_follows_a_failure(word: str, programs: Path) -> None:
    require_next_episodes(odd(programs, word), {2} if word == "fails" else {1, 2})


@pytest.mark.parametrize("word", ["late", "bursts", "keeps", "gives_up", "prints_errors", ""])
def test_an_abandoned_episode_is_dropped(word: str, programs: Path) -> None:
    with VecEnv(odd(programs, word), 4, seed=1) as vec:
        for _ in range(3):
            obs = acted(vec, vec.reset(), 1)
            assert not obs.truncated.any()
            assert not len(obs.episodes)
        if word in ("", "keeps", "gives_up"):
            for _ in range(3):
                obs = acted(vec, obs, 4)
                assert len(obs.episodes) == (8 if obs.terminated.any() else 0)
                assert {each.reward for each in obs.episodes} <= {3.0, 4.0}


@pytest.mark.parametrize("link", ["unix", "tcp"])
def test_a_game_that_prints(link: Link, programs: Path) -> None:
    with VecEnv(odd(programs, "prints", link), 4, seed=1) as vec:
        obs = acted(vec, vec.reset(), 4)
        assert obs.terminated.all()
        assert [each.reward for each in obs.episodes] == [4.0, 3.0] * 4


def test_with_stdio_a_game_must_not_print(programs: Path) -> None:
    with VecEnv(odd(programs, "prints_errors", "stdio"), 4, seed=1) as vec:
        assert acted(vec, vec.reset(), 4).terminated.all()
    with (
        VecEnv(odd(programs, "prints", "stdio"), 4) as vec,
        pytest.raises(MessageError, match="the program must not print to the connection"),
    ):
        vec.reset()


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("entity", "the game has no entity Unknown: add .entity::<Unknown>() to it"),
        ("action", "Other: add .action::<...>() to it"),
        ("twice", "Agent::act: await the last answer first"),
        ("same", "the same action twice"),
        ("early", "Agent::game_over: await the last answer first"),
        ("end", "Agent::game_over: the agent has ended its episode already"),
        ("wait", "Agent::act: the agent has ended its episode"),
        ("mask_size", "Move: expected a mask of 2 flags, 2 for each of 1 actors, got 1"),
        ("mask_empty", "Move: the mask allows no choice"),
        ("visible", "Obs::visible: expected 1 flags for Dot, got 2"),
        ("metric", "the game has no metric speed"),
        ("globals", "expected 0 global features, got 1"),
        ("select", "SelectRock: there is no entity to select"),
        ("below", "the limit must be from 1 to 2^32, got 0"),
    ],
)
def test_a_wrong_call_fails_where_it_is(word: str, message: str, programs: Path) -> None:
    rng = np.random.default_rng(0)
    with VecEnv(odd(programs, word), 4) as vec:
        obs = vec.reset()
        for _ in range(2):
            obs = vec.act(random_actions(obs, vec.action_space(), rng))
        with pytest.raises(WorkerError) as caught:
            vec.act(random_actions(obs, vec.action_space(), rng))
        assert message in str(caught.value)
        assert "odd_games.rs:" in caught.value.game_traceback
        vec.reset()


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("road_start", "relation Road: start of row 1 is 2, expected the index of a Car, of which"),
        ("road_acts", "Road: relations cannot act"),
        ("road_alone", "SelectRoad: the mask allows no choice; leave such actors out"),
        ("road_of_rock", "SelectRoad: an actor chooses among the Road that start at it, so it mus"),
        ("road_given", "Trip.speed: its mask can depend only on the part directly before it"),
        ("road_flags", "Trip.speed: expected a mask of 12 flags, 6 for each of 2 actors, got 6"),
    ],
)
def test_wrong_relations_fail_where_they_are(word: str, message: str, programs: Path) -> None:
    with VecEnv(odd(programs, word), 4) as vec, pytest.raises(WorkerError) as caught:
        vec.reset()
    assert message in str(caught.value)
    assert "odd_games.rs:" in caught.value.game_traceback


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("mixed", "Mixed.rock: either all parts of a decision or none must be global"),
        ("road_type", "relation Gap refers to Rock: add .entity::<Rock>() to the game"),
        ("road_to_road", "relation Loop refers to Road: add .entity::<Road>() to the game, an ent"),
        ("no_action", "a game needs an action"),
        ("no_type", "SelectRock selects Rock: add .entity::<Rock>() to the game"),
        ("two_names", "the game has two actions with the name Move"),
    ],
)
def test_a_game_that_cannot_be_described(word: str, message: str, programs: Path) -> None:
    with pytest.raises(WorkerError) as caught, VecEnv(odd(programs, word), 4):
        pass
    assert message in str(caught.value)


# --------------------------------------------------------------------------- messages of a host


def fields_of(output: bytes, wanted: Kind) -> dict[str, Any]:
    """The JSON of the only message of a kind."""
    at = 0
    while at < len(output):
        _, kind, size = HEADER.unpack_from(output, at)
        if kind == wanted:
            fields: dict[str, Any] = json.loads(output[at + HEADER.size : at + HEADER.size + size])
            return fields
        at += HEADER.size + size
    raise AssertionError(f"no {wanted.name}: {output!r}")


@pytest.mark.parametrize("name", [*GAMES, "kinds", "roads"])
def test_mutated_messages(name: str, programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = [str(programs / (name if name in GAMES else "odd_games")), name]
    messages = recorded(ExternalGame(words), monkeypatch)
    assert answered(words, packed(messages)).returncode == 0
    num_refused = 0
    for seed in range(NUM_CASES):
        done = answered(words, mutated(Random(f"{name} {seed}"), messages))
        assert len(done.stderr.splitlines()) == done.returncode, f"case {seed}: {done.stderr!r}"
        num_refused += done.returncode
    assert num_refused > NUM_CASES // 3


@pytest.mark.parametrize("num_envs", [10**6, 16_777_216, 2**31 - 1, 2**64, 10**30, -1, 0])
def test_it_reserves_no_memory_for_copies_that_are_not_reset(num_envs: int, programs: Path) -> None:
    reset = struct.pack("<QqQ", 1, 0, 5)
    data = packed([start_with(num_envs), (Kind.RESET, reset)])
    assert answered(limited(programs / "snake"), data).returncode == 1


def test_it_reserves_no_memory_for_bytes_that_do_not_arrive(programs: Path) -> None:
    begun = HEADER.pack(MAGIC, Kind.RESET, 256 << 20) + bytes(64)
    done = answered(limited(programs / "snake"), packed([start_with(4)]) + begun)
    assert "has ended within a message" in fields_of(done.stdout, Kind.ERROR)["message"]


def limited(program: Path) -> list[str]:
    """The command of a program that can use little memory."""
    return ["sh", "-c", f'ulimit -v {MAX_MEMORY_KB} && exec "$0"', str(program)]


@pytest.mark.parametrize(
    ("kind", "data", "reason"),
    [
        *REFUSED,
        (Kind.RESET, struct.pack("<QqQ", 1, -1, 5), b"must exist and increase"),
        (99, b"", b"a message of kind 99 is not due now"),
    ],
)
def test_it_says_what_it_refuses(kind: int, data: bytes, reason: bytes, programs: Path) -> None:
    reset = Kind.RESET, struct.pack("<Q2q2Q", 2, 0, 1, 5, 5)
    done = answered([str(programs / "snake")], packed([start_with(2), reset, (kind, data)]))
    assert done.returncode == 1
    assert reason.decode() in fields_of(done.stdout, Kind.ERROR)["message"]
    assert reason in done.stderr


@pytest.mark.parametrize(
    ("start", "reason"),
    [
        ('{"protocol": 2, "num_envs": 1}', "the version of the protocol must be 1"),
        ('{"num_envs": 1}', "the version of the protocol must be 1"),
        ('{"protocol": 1, "num_envs": 1.5}', "num_envs must be an integer from 1 to 16777216"),
        ('{"protocol": 1, "num_envs": 1, "hold": 1}', "hold must be true or false"),
        ('{"protocol": 1, "num_envs": 1, "settings": {"board_size": "3"}}', "an integer from 0"),
        ("[1", "not JSON in UTF-8"),
        ("[" * 999_992, "not JSON in UTF-8"),
        (" " * (2**20 + 8), "expected a multiple of 8, at most 1048576"),
    ],
)
def test_a_start_that_it_refuses(start: str, reason: str, programs: Path) -> None:
    data = start.encode().ljust(-(-len(start) // 8) * 8)
    done = answered([str(programs / "snake")], packed([(Kind.START, data)]))
    assert done.returncode == 1
    assert reason in fields_of(done.stdout, Kind.ERROR)["message"]


def test_a_masked_choice_is_refused(programs: Path) -> None:
    reset = Kind.RESET, struct.pack("<QqQ", 1, 0, 5)
    act = Kind.ACT, struct.pack("<Qq", 5, 4)
    done = answered([str(programs / "tic_tac_toe")], packed([start_with(1), reset, act, act]))
    assert "a choice is not allowed" in fields_of(done.stdout, Kind.ERROR)["message"]


def test_it_exits_with_its_host(programs: Path) -> None:
    """A host that is killed closes the connection without CLOSE."""
    done = answered([str(programs / "snake")], packed([start_with(4)]))
    assert done.returncode == 0
    assert len(fields_of(done.stdout, Kind.READY)["checksum"]) == 16


@pytest.mark.parametrize("address", [None, "udp:127.0.0.1:1", "unix:/nowhere", "tcp:8.8.8.8:1"])
def test_an_address_that_it_refuses(address: str | None, programs: Path) -> None:
    env = {**os.environ, "ENTITY_ENV_TOKEN": ""}
    env.pop("ENTITY_ENV_ADDRESS", None)
    if address is not None:
        env["ENTITY_ENV_ADDRESS"] = address
    done = subprocess.run([programs / "snake"], env=env, capture_output=True, text=True, timeout=30)
    assert done.returncode == 1
    assert re.fullmatch(r"entity_env: .*ENTITY_ENV_ADDRESS.*\n|.*cannot connect.*\n", done.stderr)


@pytest.mark.parametrize("link", ["unix", "tcp"])
def test_it_waits_for_a_host_that_has_not_started_it(
    link: str, programs: Path, tmp_path: Path
) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = f"unix:{tmp_path}/s" if link == "unix" else f"tcp:127.0.0.1:{port}"
    env = {**os.environ, "ENTITY_ENV_ADDRESS": address}
    env.pop("ENTITY_ENV_TOKEN", None)
    with subprocess.Popen([programs / "snake"], env=env) as program:
        with pytest.raises(subprocess.TimeoutExpired):
            program.wait(0.3)
        family = socket.AF_UNIX if link == "unix" else socket.AF_INET
        with socket.socket(family) as host:
            host.bind(address.removeprefix("unix:") if link == "unix" else ("127.0.0.1", port))
            host.listen(1)
            host.settimeout(30)
            connection, _ = host.accept()
            with connection:
                connection.settimeout(30)
                assert connection.recv(4) == MAGIC
                connection.shutdown(socket.SHUT_WR)
                assert program.wait(30) == 0


@pytest.mark.parametrize("name", [*GAMES, "kinds", "parts", "roads"])
def test_it_keeps_the_contract(name: str, programs: Path) -> None:
    """Among others: copies, requests in pieces, ends of the connection, invalid requests."""
    game = ExternalGame([str(programs / (name if name in GAMES else "odd_games")), name])
    assert not list(program_violations(game, 1, lambda stage: None, math.inf))
