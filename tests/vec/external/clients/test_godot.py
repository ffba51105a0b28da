"""The client for Godot plays the episodes of its Python twins, and reports what games do wrong."""

from __future__ import annotations

import os
import re
import shutil
import socket
import struct
import subprocess
from configparser import ConfigParser
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from random import Random
from typing import Any, Final, get_args

import numpy as np
import pytest

from entity_env import Game
from entity_env.agents import random_actions
from entity_env.core.vec_obs import VecObs
from entity_env.errors import WorkerError
from entity_env.vec import Autoreset, ExternalGame, VecEnv
from entity_env.vec.external.messages import Kind
from tests.vec.external.test_c_fuzz import NUM_CASES, mutated, packed, recorded, start_with
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

FOLDER: Final = Path(__file__).parents[4] / "clients" / "godot"
ODD: Final = Path(__file__).with_name("odd_games.gd")
GODOT: Final = next(filter(None, map(shutil.which, ("godot3-server", "godot3", "godot"))), None)
LOCALE: Final = {"LANG": "en_US.UTF-8"}
"""Godot complains about other locales."""
pytestmark = [
    pytest.mark.skipif(GODOT is None, reason="Godot 3 is not installed"),
    pytest.mark.slow,
]


def words_of(*arguments: str) -> list[str]:
    return [str(GODOT), "--path", str(FOLDER), "--no-window", *arguments]


def game_of(name: str, **settings: Any) -> ExternalGame:  # noqa: ANN401
    return ExternalGame(words_of("-s", f"games/{name}.gd"), link="tcp", **settings)


def odd(word: str) -> ExternalGame:
    return ExternalGame(words_of("-s", str(ODD), f"--odd={word}"), link="tcp")


def chase(**settings: int) -> ExternalGame:
    words = words_of("--fixed-fps", "60", "games/chase/chase.tscn")
    return ExternalGame(words, link="tcp", **settings)  # type: ignore[arg-type]  # no folder


# ------------------------------------------------------------------------------------- equality


@pytest.mark.parametrize("autoreset", get_args(Autoreset))
@pytest.mark.parametrize("name", GAMES)
def test_it_equals_its_twin(name: str, autoreset: Autoreset) -> None:
    require_equal(game_of(name), twin_of(name), autoreset)


@pytest.mark.parametrize("autoreset", get_args(Autoreset))
@pytest.mark.parametrize(
    "settings",
    [
        {"board_size": 3, "max_snake_length": 3, "max_step": 30},
        {"board_size": 2, "num_snakes": 1, "max_snake_length": 2},
    ],
)
def test_crowded_boards(settings: dict[str, int], autoreset: Autoreset) -> None:
    twin = twin_of("multi_snake").with_settings(**settings)
    game = game_of("multi_snake").with_settings(**settings)
    require_equal(game, twin, autoreset, num_steps=400)


@pytest.mark.parametrize("name", GAMES)
def test_replays_are_those_of_its_twin(name: str) -> None:
    require_verified(game_of(name))


@pytest.mark.parametrize("autoreset", get_args(Autoreset))
def test_actions_of_all_kinds(autoreset: Autoreset) -> None:
    require_equal(odd("kinds"), kinds, autoreset)


@pytest.mark.parametrize("autoreset", get_args(Autoreset))
@pytest.mark.parametrize("twin", [parts, roads], ids=["parts", "roads"])
def test_decisions_in_several_parts_and_relations(twin: Game, autoreset: Autoreset) -> None:
    require_equal(odd(twin.name), twin, autoreset)


def readme_game(folder: Path, old: str = "", new: str = "") -> ExternalGame:
    """The game in the README, perhaps with a mistake."""
    found = re.search(r"```gdscript\n(.*?)```", (FOLDER / "README.md").read_text(), re.DOTALL)
    assert found is not None
    assert old in found[1]
    (folder / "coin.gd").write_text(found[1].replace(old, new))
    return ExternalGame(words_of("-s", str(folder / "coin.gd")), link="tcp", turns=3)


def test_the_game_in_the_readme(tmp_path: Path) -> None:
    with VecEnv(readme_game(tmp_path), 4) as vec:
        obs = vec.reset()
        for _ in range(3):
            assert not obs.terminated.any()
            obs = acted(vec, obs)
        assert obs.terminated.all()


def test_the_addon_is_a_plugin_of_the_editor() -> None:
    addon = FOLDER / "addons" / "entity_env"
    config = ConfigParser()
    config.read(addon / "plugin.cfg")
    plugin = {name: text.strip('"') for name, text in config["plugin"].items()}
    assert set(plugin) == {"name", "description", "author", "version", "script"}
    assert plugin["version"] == metadata.version("entity-env")
    words = words_of("--check-only", "-s", str(addon / plugin["script"]))
    assert subprocess.run(words, env={**os.environ, **LOCALE}, timeout=30).returncode == 0


# --------------------------------------------------------------------------- a scene with physics


def test_copies_of_a_scene_do_not_share_physics() -> None:
    """Copies play the same episodes in one program and alone."""
    game = chase(max_steps=7)
    rng = np.random.default_rng(3)
    with VecEnv(game, 3, seed=5) as many, VecEnv(game, 3, seed=5, num_workers=3) as alone:
        one, other = many.reset(), alone.reset()
        for step in range(20):
            if step == 3:  # from now on, copies end at different times
                some = np.array([True, False, False])
                one, other = many.reset_envs(some), alone.reset_envs(some)
            for name, rows in one.features.items():
                np.testing.assert_array_equal(rows.values, other.features[name].values)
            actions = random_actions(one, many.action_space(), rng)
            one, other = many.act(actions), alone.act(actions)
        assert {each.length for each in one.episodes} <= {7}


def test_an_action_moves_the_body() -> None:
    """One step is six frames at 300 pixels per second, of 400 pixels from -1 to 1."""
    game = chase(num_rocks=0)
    right = np.zeros(1, dtype=np.int64) + 3
    with VecEnv(game, 1, seed=5) as vec:
        before = vec.reset().features["Chaser"].values
        for _ in range(3):
            after = vec.act({"Move": right}).features["Chaser"].values
            np.testing.assert_allclose(after - before, [[0.15, 0]], atol=1e-5)
            before = after


# --------------------------------------------------------------------------- games with an error


def acted(vec: VecEnv, obs: VecObs, num_steps: int = 1) -> VecObs:
    """The observations after some steps with random actions."""
    rng = np.random.default_rng(0)
    for _ in range(num_steps):
        obs = vec.act(random_actions(obs, vec.action_space(), rng))
    return obs


@pytest.mark.parametrize("word", ["", "frame", "settings"])
def test_a_game_without_faults(word: str) -> None:
    with VecEnv(odd(word), 4, seed=1) as vec:
        acted(vec, vec.reset(), 2)
        for _ in range(2):
            obs = acted(vec, vec.reset(), 4)
            assert obs.terminated.all()
            assert {each.length for each in obs.episodes} == {2}


FAILURES: Final = [
    ("fails", 2, 'a "wheel"\n\tcame off: é'),
    ("fails_at_once", 0, "no wheels"),
    ("returns", 2, "play returned, but an agent has not ended its episode: call game_over"),
    ("script_error", 2, "correct the script error printed above"),
    ("type", 2, "unknown entity type: the observation has [Car], and the game [Dot, Other]"),
    ("action", 2, "unknown action: asked for [Jump], and the game has [Move, SelectDot]"),
    ("number", 2, "Dot: the features [x] must be numbers, got far"),
    ("missing", 2, "Dot: the features [x] must be numbers, got Null"),
    ("width", 2, "Dot: expected the features [x], got [1, 2]"),
    ("score", 2, "the score must be finite, got nan"),
    ("mask", 2, "the mask of Move needs 2 flags, got [True]"),
    ("mask_count", 2, "the mask of SelectDot needs flags for each of 1 actors, got []"),
    ("visible", 2, "visible needs one flag for each Dot, got [True, True]"),
    ("twice", 2, "act was called before the last answer: use yield(agent.act(...)"),
    ("ended", 1, "act was called after game_over"),
    ("end", 1, "game_over was called twice"),
]
"""Words of `odd_games.gd`, the step in which they fail, and the reason."""


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("road_start", "relation Road: start of row 1 is 2, expected the position of a Car, of w"),
        ("road_half", "relation Road: end of row 1 is 0.5, expected the position of a Rock, of w"),
        ("road_acts", "Road is a relation, which cannot act: add it with entities"),
        ("road_of_rock", "SelectRoad: an actor chooses among the relations Road that start at it"),
        ("road_given", "the mask of Trip.speed is given Trip.flag, but it can depend only on the"),
        ("road_lists", "the mask of Trip.speed needs 2 lists of flags, one per choice of Trip.ro"),
        ("road_flags", "the mask of Trip.speed needs 3 flags, got [1]"),
        ("road_none", "the mask of SelectRoad needs 2 flags, got [True]"),
        ("road_part", "asked for [Trip.road], and the game has [SelectRoad, Trip]"),
    ],
)
def test_wrong_relations_are_refused(word: str, message: str) -> None:
    with VecEnv(odd(word), 4, seed=1) as vec, pytest.raises(WorkerError) as caught:
        vec.reset()
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("road_to_road", "the relation 'Road' refers to 'Road', expected an entity type, which"),
        ("road_mixed", "either all parts of 'Trip' or none must be the result of global_cate"),
    ],
)
def test_parts_and_relations_that_are_not_defined_correctly(
    word: str, message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(WorkerError, match="exited with code 1 before it connected"):
        odd(word)
    assert f"EntityEnv: {message}" in capfd.readouterr().err


@pytest.mark.parametrize(("word", "step", "message"), FAILURES)
def test_a_game_that_fails(word: str, step: int, message: str) -> None:
    with VecEnv(odd(word), 4, seed=1) as vec:
        with pytest.raises(WorkerError) as caught:
            acted(vec, vec.reset(), 4)
        error = caught.value
        assert message in str(error)
        assert (error.env_id, error.episode, error.step) == (0, 0, step)
        if step:
            acted(vec, vec.reset(), 1)


@pytest.mark.parametrize("word", ["fails", "returns", "script_error", "type", "twice"])
def test_the_next_episode_follows_a_failure(word: str) -> None:
    with VecEnv(odd(word), 4, seed=1, on_error="restart") as vec:
        obs = vec.reset()
        for _ in range(3):
            obs = acted(vec, obs, 3)
            failed = [each for each in obs.episodes if each.metrics == {"error": 1.0}]
            assert len(failed) == (4 if word == "fails" else 8)
            assert len(obs.features["Dot"].values) == 4


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("all_ended", "game_over was called twice"),
        ("deaf", "play must return when act gives null"),
    ],
)
def test_a_game_that_cannot_go_on(word: str, message: str) -> None:
    with VecEnv(odd(word), 4) as vec:
        obs = acted(vec, vec.reset(), 2)
        with pytest.raises(WorkerError, match=message):
            vec.reset() if word == "deaf" else acted(vec, obs, 1)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"settings": ', '"setting": ', "the game has an unknown key 'setting'"),
        ('self, "play"', 'self, "plays"', "the key 'play' must be a function that exists"),
        ('funcref(self, "play")', "7", "the key 'play' must be a function that exists"),
        ("EntityEnv.global_categorical", "", "the action 'Side' must be the result of global_"),
    ],
)
def test_a_game_that_is_not_defined_correctly(
    old: str, new: str, message: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(WorkerError, match="exited with code 1 before it connected"):
        readme_game(tmp_path, old, new)
    assert f"EntityEnv: {message}" in capfd.readouterr().err


def test_settings_that_it_refuses() -> None:
    assert "board_size must be at least 2" in require_failure(game_of("snake"), board_size=1)


# --------------------------------------------------------------------------- messages of a host


def answered(words: list[str], data: bytes) -> tuple[int, str]:
    """Exit code of a program that gets these bytes, and the only line that it prints, or ""."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"tcp:127.0.0.1:{server.getsockname()[1]}"
        env = {**os.environ, **LOCALE, "ENTITY_ENV_ADDRESS": address, "ENTITY_ENV_TOKEN": "x"}
        server.settimeout(30)
        with subprocess.Popen(words, env=env, stderr=subprocess.PIPE, text=True) as process:
            try:
                with server.accept()[0] as connection:
                    connection.settimeout(30)
                    with suppress(OSError):  # it may exit before it has read everything
                        connection.sendall(data)
                        connection.shutdown(socket.SHUT_WR)
                        while connection.recv(2**16):
                            pass
                errors = process.communicate(timeout=30)[1]
            finally:
                process.kill()
    assert "SCRIPT ERROR" not in errors
    lines = [line for line in errors.splitlines() if line.startswith("EntityEnv: ")]
    assert process.returncode in (0, 1), errors
    assert len(lines) == process.returncode, errors
    return process.returncode, "".join(lines)


@pytest.mark.parametrize("name", ["snake", "kinds"])
def test_mutated_messages(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    words = words_of("-s", *([str(ODD), "--odd=kinds"] if name == "kinds" else ["games/snake.gd"]))
    messages = recorded(ExternalGame(words, link="tcp"), monkeypatch)
    assert answered(words, packed(messages)) == (0, "")
    num_cases = NUM_CASES // 2
    codes = [answered(words, mutated(Random(f"{name} {i}"), messages))[0] for i in range(num_cases)]
    assert sum(codes) > num_cases // 3


@pytest.mark.parametrize(
    ("kind", "data", "reason"),
    [
        (Kind.RESET, struct.pack("<Q2q2Q", 2, 1, 0, 5, 5), "RESET names the copy 0 after 1"),
        (Kind.RESET, struct.pack("<QqQ", 1, 2, 5), "RESET names the copy 2 after -1, of 2 copies"),
        (Kind.RESET, struct.pack("<Q", 0), "RESET has a wrong size"),
        (Kind.ACT, struct.pack("<2Q", 5, 5), "ACT has a wrong size"),
        (Kind.ACT, struct.pack("<2Q3q", 5, 5, 0, 0, 0), "message 5 has a wrong size: 40 bytes"),
        (Kind.ACT, struct.pack("<2Q2q", 5, 5, 0, 4), "ACT has the choice 4 for Move"),
        (Kind.ACT, struct.pack("<2Q2q", 5, 5, -1, 0), "ACT has the choice -1 for Move"),
        (Kind.START, b"{}      ", "message 2 is not due now"),
        (Kind.STEP, b"", "message 6 is not due now"),
        (99, b"", "message 99 is not due now"),
    ],
)
def test_it_says_what_it_refuses(kind: int, data: bytes, reason: str) -> None:
    reset = Kind.RESET, struct.pack("<Q2q2Q", 2, 0, 1, 5, 5)
    code, line = answered(
        words_of("-s", "games/snake.gd"), packed([start_with(2), reset, (kind, data)])
    )
    assert code == 1
    assert reason in line


@pytest.mark.parametrize(
    ("start", "reason"),
    [
        ('{"protocol": 2, "num_envs": 1}', "START needs protocol 1"),
        ('{"protocol": "1", "num_envs": 1}', "START needs protocol 1"),
        ('{"protocol": 1, "num_envs": "1"}', "1 to 65536 num_envs"),
        ('{"protocol": 1, "num_envs": 1.5}', "1 to 65536 num_envs"),
        ('{"protocol": 1, "num_envs": 1e9}', "1 to 65536 num_envs"),
        ('{"protocol": 1, "num_envs": 1, "hold": 1}', "hold as true or false"),
        ('{"protocol": 1, "num_envs": 1, "settings": {"board_size": "3"}}', "the setting board"),
        ('{"protocol": 1, "num_envs": 1, "settings": {"board_size": 2.5}}', "the setting board"),
        ("[1", "START is not a JSON object"),
        ("[" * 999_992, "START is nested too deeply"),
        (" " * (2**20 + 8), "message 2 has a wrong size"),
    ],
)
def test_a_start_that_it_refuses(start: str, reason: str) -> None:
    data = start.encode().ljust(-(-len(start) // 8) * 8)
    code, line = answered(words_of("-s", "games/snake.gd"), packed([(Kind.START, data)]))
    assert code == 1
    assert reason in line


@pytest.mark.parametrize("address", ["", "stdio", "unix:/nowhere", "tcp:127.0.0.1:1"])
def test_an_address_that_it_refuses(address: str) -> None:
    env = {**os.environ, **LOCALE, "ENTITY_ENV_ADDRESS": address, "ENTITY_ENV_TOKEN": "x"}
    words = words_of("-s", "games/snake.gd")
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=30)
    assert done.returncode == 1
    assert re.search(
        r"^EntityEnv: (ENTITY_ENV_ADDRESS must be tcp:HOST:PORT|no host at)", done.stderr, re.M
    )
