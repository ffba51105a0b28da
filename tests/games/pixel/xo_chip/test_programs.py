"""Our own games: their goals are reached, stay on the screen, and appear nowhere else."""

from itertools import pairwise

import numpy as np
import pytest

from entity_env.errors import UsageError
from entity_env.games.pixel.worlds.world import Button
from entity_env.games.pixel.xo_chip import KEYS, PROGRAMS, Halt, goal_frame, program
from tests.games.pixel.xo_chip.plain_machine import PlainMachine, run
from tools.assemble import SOURCES, assemble

NAMES = sorted(PROGRAMS)
TAU = 0.05


def distance(machine: PlainMachine, name: str) -> float:
    difference = np.abs(machine.pixels().astype(int) - goal_frame(name))
    return float(difference.sum() / (3 * difference.size))


def begun(name: str, *buttons: Button) -> PlainMachine:
    """Return a game after some buttons from its start."""
    return run(program(name), (*PROGRAMS[name].start, *buttons))


def distances(name: str, buttons: tuple[Button, ...]) -> list[float]:
    """Return the distance to the goal at the start and after each button."""
    return [distance(begun(name, *buttons[:count]), name) for count in range(len(buttons) + 1)]


def test_there_are_two() -> None:
    assert NAMES == ["catch", "maze"]


@pytest.mark.parametrize("name", NAMES)
def test_the_files_are_what_the_sources_say(name: str) -> None:
    """If this fails after a change of a source, run python tools/assemble.py."""
    assert program(name) == assemble((SOURCES / f"{name}.asm").read_text(encoding="utf-8"))
    start, solution = PROGRAMS[name]
    assert (run(program(name), (*start, *solution)).pixels() == goal_frame(name)).all()


@pytest.mark.parametrize("name", NAMES)
def test_the_solution_reaches_the_goal_with_its_last_button(name: str) -> None:
    far = distances(name, PROGRAMS[name].solution)
    assert far[-1] == 0
    assert min(far[:-1]) > 2 * TAU
    assert 10 <= len(PROGRAMS[name].solution) <= 40


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("button", Button)
def test_the_goal_stays_whatever_is_pressed(name: str, button: Button) -> None:
    machine = begun(name, *PROGRAMS[name].solution, *3 * (button,))
    assert distance(machine, name) == 0
    assert machine.halt is Halt.RUNNING


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", range(2))
def test_other_ways_stay_away_from_the_goal(name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    machine = begun(name)
    for value in rng.integers(len(Button), size=25):
        machine.step(1 << KEYS[Button(int(value))], frames=24, instructions=30)
        assert distance(machine, name) > TAU
        assert machine.halt is Halt.RUNNING


@pytest.mark.parametrize("name", NAMES)
def test_the_start_is_far_from_the_goal(name: str) -> None:
    assert begun(name).pixels().max() >= 1
    assert distance(begun(name), name) > 6 * TAU
    assert set(np.unique(goal_frame(name))) <= {0, 1, 2, 3}
    assert goal_frame(name).shape == (64, 128)
    assert goal_frame(name).dtype == np.uint8


@pytest.mark.parametrize("name", NAMES)
def test_a_goal_frame_is_new_each_time(name: str) -> None:
    first = goal_frame(name)
    first[:] = 3
    assert (goal_frame(name) != 3).any()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("button", [Button.A, Button.B, Button.START])
def test_other_buttons_do_the_same_nothing(name: str, button: Button) -> None:
    assert begun(name, button).state() == begun(name, Button.A).state()


def test_other_seeds_of_catch_drop_elsewhere() -> None:
    start, _ = PROGRAMS["catch"]
    assert len({run(program("catch"), start, seed=3**power).v[11] for power in range(20)}) > 3


def test_an_unknown_name() -> None:
    for function in (program, goal_frame):
        with pytest.raises(UsageError, match="program: expected one of catch, maze, got 'pong'"):
            function("pong")


# ---------------------------------------------------------------------------- maze


@pytest.mark.slow
def test_in_the_maze_every_step_of_the_way_comes_nearer_by_the_same() -> None:
    far = distances("maze", PROGRAMS["maze"].solution)
    gains = {round((before - after) * 3 * 64 * 128) for before, after in pairwise(far[:-1])}
    assert gains == {2 * 14 * 14}


def test_in_the_maze_a_wrong_turn_leads_away_and_walking_back_does_not_undo_it() -> None:
    far = distances("maze", (*PROGRAMS["maze"].solution[:4], Button.LEFT, Button.RIGHT))
    assert far[-2] > far[-3]
    assert round((far[-1] - far[-3]) * 3 * 64 * 128) == 2 * 14 * 14


@pytest.mark.parametrize("button", [Button.UP, Button.LEFT, Button.RIGHT])
def test_in_the_maze_walls_are_hard(button: Button) -> None:
    assert (begun("maze", button).pixels() == begun("maze").pixels()).all()


def test_in_the_maze_a_button_held_walks_one_place_a_step() -> None:
    machine = begun("maze", Button.DOWN)
    assert machine.v[14] == 8
    places = []
    for _ in range(3):
        machine.step(1 << KEYS[Button.RIGHT], frames=24, instructions=30)
        places.append(machine.v[14])
    assert places == [9, 10, 10]


# ---------------------------------------------------------------------------- catch


def test_the_bucket_moves_by_its_width_and_stops_at_the_edges() -> None:
    left, right = begun("catch", *9 * (Button.LEFT,)), begun("catch", *9 * (Button.RIGHT,))
    assert (begun("catch").v[10], begun("catch", Button.LEFT).v[10]) == (64, 48)
    assert (left.v[10], right.v[10]) == (0, 112)


def test_a_drop_falls_and_a_missed_one_is_followed_by_the_next() -> None:
    heights = [begun("catch", *count * (Button.RIGHT,)).v[12] for count in range(7)]
    assert heights == [8, 16, 24, 32, 40, 0, 8]
    assert begun("catch", *6 * (Button.RIGHT,)).v[13] == 64


@pytest.mark.slow
def test_every_caught_drop_raises_the_water_by_a_quarter() -> None:
    solution = PROGRAMS["catch"].solution
    water = [begun("catch", *solution[:count]).v[13] for count in range(len(solution) + 1)]
    assert water == [64] * 5 + [48] * 6 + [32] * 6 + [0]
    assert (begun("catch", *solution[:5]).pixels()[48:, 32:] == 2).all()
