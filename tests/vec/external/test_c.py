"""The client for C plays the episodes of its Python twins, and reports what games do wrong."""

from __future__ import annotations

import math
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest

from entity_env import Game
from entity_env.check.program import program_violations
from entity_env.errors import ProtocolError, WorkerError
from entity_env.vec import Autoreset, VecEnv
from entity_env.vec.external.game import ExternalGame
from entity_env.vec.external.program import Link
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

FOLDER = Path(__file__).parents[3] / "clients" / "c"
ODD = Path(__file__).with_name("odd_games.c")
STRICT = ("-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I", str(FOLDER))
GCC = "gcc -std=c99 -O2"
CPP = "g++ -std=c++11 -O2 -x c++"
SANITIZERS = "-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all"
Compile = Callable[..., Path]
pytestmark = [
    pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed"),
    pytest.mark.slow,
]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Compile:
    """Compiles a game, once for each command of a compiler."""
    folder = tmp_path_factory.mktemp("c")
    made: dict[str, Path] = {}

    def compiled(name: str, compiler: str = GCC) -> Path:
        if shutil.which(compiler.split()[0]) is None:
            pytest.skip(f"{compiler.split()[0]} is not installed")
        key = f"{name} {compiler}"
        if key not in made:
            source = ODD if name == "odd_games" else FOLDER / "games" / f"{name}.c"
            made[key] = target = folder / f"{name}{len(made)}"
            words = [*compiler.split(), *STRICT, str(source), "-o", str(target), "-lm"]
            done = subprocess.run(words, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
        return made[key]

    return compiled


@pytest.fixture
def sanitized(program: Compile, monkeypatch: pytest.MonkeyPatch) -> Compile:
    """Compiles a game with sanitizers, whose reports end the program."""
    monkeypatch.setenv("ASAN_OPTIONS", "detect_leaks=0:detect_stack_use_after_return=0")
    return lambda name: program(name, f"{GCC} {SANITIZERS}")


# ------------------------------------------------------------------------------------- equality


@pytest.mark.parametrize("autoreset", get_args(Autoreset))
@pytest.mark.parametrize("name", GAMES)
def test_it_equals_its_twin(name: str, autoreset: Autoreset, program: Compile) -> None:
    require_equal(ExternalGame([str(program(name))]), twin_of(name), autoreset)


@pytest.mark.parametrize("name", GAMES)
def test_replays_are_those_of_its_twin(name: str, program: Compile) -> None:
    require_verified(ExternalGame([str(program(name))]))


@pytest.mark.parametrize("autoreset", get_args(Autoreset))
@pytest.mark.parametrize("settings", CROWDED)
def test_crowded_boards(settings: dict[str, int], autoreset: Autoreset, program: Compile) -> None:
    game = ExternalGame([str(program("multi_snake"))]).with_settings(**settings)
    twin = twin_of("multi_snake").with_settings(**settings)
    require_equal(game, twin, autoreset, num_steps=400)


@pytest.mark.parametrize("autoreset", get_args(Autoreset))
@pytest.mark.parametrize("compiler", [GCC, CPP, f"{GCC} -DEE_UCONTEXT", f"{GCC} {SANITIZERS}"])
def test_actions_of_all_kinds(
    compiler: str, autoreset: Autoreset, program: Compile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASAN_OPTIONS", "detect_leaks=0:detect_stack_use_after_return=0")
    require_equal(odd(program("odd_games", compiler), "kinds"), kinds, autoreset)


@pytest.mark.parametrize("compiler", [GCC, CPP, f"{GCC} {SANITIZERS}"])
@pytest.mark.parametrize("twin", [parts, roads], ids=["parts", "roads"])
def test_decisions_in_several_parts_and_relations(
    twin: Game, compiler: str, program: Compile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASAN_OPTIONS", "detect_leaks=0:detect_stack_use_after_return=0")
    require_equal(odd(program("odd_games", compiler), twin.name), twin, "same_step")


@pytest.mark.parametrize("link", get_args(Link))
def test_every_link(link: Link, program: Compile) -> None:
    game = ExternalGame([str(program("snake"))], link=link, board_size=5)
    twin = twin_of("snake").with_settings(board_size=5)
    require_equal(game, twin, "same_step", num_steps=60)


@pytest.mark.parametrize("name", GAMES)
def test_it_compiles_as_cpp(name: str, program: Compile) -> None:
    game = ExternalGame([str(program(name, CPP))])
    require_equal(game, twin_of(name), "same_step", num_steps=40)


@pytest.mark.parametrize("name", GAMES)
def test_sanitizers_find_nothing(name: str, sanitized: Compile) -> None:
    game = ExternalGame([str(sanitized(name))])
    require_equal(game, twin_of(name), "same_step")


@pytest.mark.parametrize("word", ["kinds", "parts", "roads"])
def test_it_keeps_the_contract(word: str, sanitized: Compile) -> None:
    """Also where masks are needed by some copies only."""
    game = odd(sanitized("odd_games"), word)
    assert not list(program_violations(game, 1, lambda stage: None, math.inf))


# --------------------------------------------------------------------------- games with an error


def odd(program: Path, word: str, link: Link = "unix") -> ExternalGame:
    return ExternalGame([str(program), word], link=link)


@pytest.mark.parametrize(
    ("word", "step", "message"),
    [
        ("fails", 2, 'a "wheel"\n\tcame off: ? é ???'),
        ("returns", 2, "the game returned, but an agent has not ended its episode: call ee_end"),
        ("yields", 2, "ee_yield was called, but no agent waits: call ee_wait"),
        ("fails_at_once", 0, "no wheels"),
    ],
)
def test_a_game_that_fails(word: str, step: int, message: str, sanitized: Compile) -> None:
    with VecEnv(odd(sanitized("odd_games"), word), 4, seed=1) as vec:
        with pytest.raises(WorkerError) as caught:
            acted(vec, vec.reset(), 9)
        error = caught.value
        assert message in str(error)
        assert (error.env_id, error.episode, error.step) == (0, 0, step)
        if step:
            obs = vec.reset()
            assert len(obs.features["Dot"].values) == 4


@pytest.mark.parametrize("word", ["fails", "returns", "yields"])
def test_the_next_episode_follows_a_failure(word: str, sanitized: Compile) -> None:
    require_next_episodes(odd(sanitized("odd_games"), word), {2} if word == "fails" else {1, 2})


def test_an_exception_in_cpp(program: Compile) -> None:
    with (
        VecEnv(odd(program("odd_games", CPP), "throws"), 4) as vec,
        pytest.raises(WorkerError, match="std::exception"),
    ):
        acted(vec, vec.reset(), 3)


def test_a_game_that_does_more_after_it_has_to_return(sanitized: Compile) -> None:
    with VecEnv(odd(sanitized("odd_games"), "late"), 4, seed=1) as vec:
        for _ in range(3):
            obs = acted(vec, vec.reset(), 1)
            assert not obs.truncated.any()
            assert not len(obs.episodes)
        assert acted(vec, obs, 3).terminated.all()


def test_a_game_that_does_not_return(program: Compile) -> None:
    with VecEnv(odd(program("odd_games"), "deaf"), 4) as vec:
        acted(vec, vec.reset(), 3)
        with pytest.raises(WorkerError, match="does not return although ee_act returned 0"):
            vec.reset()


@pytest.mark.parametrize("link", get_args(Link))
def test_a_game_that_prints_and_reads(link: Link, sanitized: Compile) -> None:
    with VecEnv(odd(sanitized("odd_games"), "prints", link), 4, seed=1) as vec:
        obs = acted(vec, vec.reset(), 4)
        assert obs.terminated.all()
        assert [each.reward for each in obs.episodes] == [4.0, 3.0] * 4


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("agent_of", "ee_agent_of: no such agent"),
        ("add", "ee_add: no such entity type"),
        ("add_null", "ee_add: features is NULL"),
        ("actor", "ee_actor: no such entity: add it first"),
        ("actor_type", "ee_actor: no such entity: add it first"),
        ("ask", "call ee_ask for an action of the kind EE_GLOBAL_CATEGORICAL, else ee_actor"),
        ("action", "the game named an action that does not exist"),
        ("mask", "ee_mask: ask for the action first"),
        ("metric", "ee_metric: no such metric"),
        ("choice", "the agent was not asked, or has fewer actors"),
        ("numbers", "the game named an action that does not exist"),
        ("other_copy", "only the `play` of this copy can wait"),
        ("end", "ee_end: the agent has ended its episode already"),
        ("wait", "ee_wait: the agent has ended its episode"),
        ("callback", "only the `play` of this copy can wait"),
        ("no_action", "a game needs an action"),
        ("too_many_given", "num_given must be at least 0, and at most the number"),
        ("other_actors", "an action that depends on others must have the same actors"),
        ("road_start", "relation Road: start of row 2 is 2, expected the number of a Car, of"),
        ("road_end", "relation Road: end of row 2 is -1, expected the number of a Rock, of"),
        ("road_half", "relation Road: start of row 2 is 0.5, expected the number of a Car, of "),
        ("road_nan", "relation Road: end of row 2 is nan, expected the number of a Rock, of "),
        ("road_last", "relation Road: start of row 3 is 7, expected the number of a Car, of"),
        ("road_acts", "ee_actor: relations cannot act"),
        ("road_of_rock", "that selects relations must be of the type of their first entity"),
        ("road_foreign", "'SelectRoad': several actors may choose one 'Road'"),
        ("road_none", "'SelectRoad': an actor has no allowed choice: leave it out"),
        ("road_late", "ee_mask: add all entities that can be selected before the first mask"),
        ("road_bare", "the first two features of a relation are its references"),
        ("road_many", "num_relations must be at least 0, and at most the number of entity types"),
        ("road_to_road", "references must be numbers of entity types that are not relations"),
        ("road_missing", "relations need references"),
    ],
)
def test_a_wrong_call_is_an_error(word: str, message: str, sanitized: Compile) -> None:
    with (
        pytest.raises((WorkerError, ProtocolError)) as caught,
        VecEnv(odd(sanitized("odd_games"), word), 4) as vec,
    ):
        acted(vec, vec.reset(), 9)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("snake", {"board_size": 1}, "board_size must be from 2 to 64"),
        ("snake", {"board_size": 2**31}, "the setting board_size must be an int"),
        ("cherry_pick", {"num_good": 0}, "num_good and num_bad must be at least 1"),
        ("multi_snake", {"board_size": 65}, "board_size must be from 1 to 64"),
        ("multi_snake", {"max_snake_length": 1}, "max_snake_length 2"),
        ("multi_snake", {"num_snakes": 2**31 - 1}, "too small for the snakes and their food"),
    ],
)
def test_settings_that_it_refuses(
    name: str, settings: dict[str, int], message: str, sanitized: Compile
) -> None:
    game = ExternalGame([str(sanitized(name))])
    assert message in require_failure(game, **settings)
