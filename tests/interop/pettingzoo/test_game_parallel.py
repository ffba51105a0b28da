"""Our games as PettingZoo parallel environments, and their masks for other trainers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, strategies as st
from pettingzoo.test import parallel_api_test, parallel_seed_test

from entity_env import Game, Obs, ProtocolError, SchemaError, UsageError
from entity_env.agents import Agent
from entity_env.authoring.action_type import Categorical, Continuous
from entity_env.check import check_game
from entity_env.games import (
    cherry_pick,
    multi_snake,
    rock_paper_scissors,
    snake,
    tic_tac_toe,
)
from entity_env.interop.gymnasium import GameEnv
from entity_env.interop.pettingzoo import GameAECEnv, GameParallelEnv, from_pettingzoo
from tests.interop.pettingzoo.test_pettingzoo import SQUARES, Move, Runner, relay

SNAKES = {"Segment": 99}
MANY = {"Trap": 50, "Treasure": 50}


def play_both(agent: Agent, *, seed: int) -> None:
    """Three steps of two runners, each choosing a direction and a speed."""
    score = 0.0
    for step in range(3):
        runners = [Runner(step), Runner(-step)]
        answer = agent.act(Obs(score).actors(runners), Categorical(Move), SPEED)
        if answer is None:
            return
        moves, speeds = answer
        score += sum(move is Move.ON for move in moves) + float(speeds.sum())
    agent.game_over(Obs(score))


SPEED = Continuous("Speed", low=(0.0,), high=(0.25,))
both = Game(play_both, entities=(Runner,), actions=(Categorical(Move), SPEED), name="both")

MAKES: dict[str, Callable[..., GameParallelEnv]] = {
    "rock_paper_scissors": lambda **o: GameParallelEnv(rock_paper_scissors, **o),
    "multi_snake": lambda **o: GameParallelEnv(multi_snake, max_entities=SNAKES, num_snakes=3, **o),
    "tic_tac_toe": lambda **o: GameParallelEnv(tic_tac_toe, max_entities=SQUARES, **o),
    "relay": lambda **o: GameParallelEnv(relay, **o),
    "both": lambda **o: GameParallelEnv(both, **o),
    "cherry_pick": lambda **o: GameParallelEnv(cherry_pick, max_entities={"Cherry": 16}, **o),
}
each_make = pytest.mark.parametrize("make", MAKES.values(), ids=MAKES)


@each_make
def test_its_own_tests_pass(
    make: Callable[..., GameParallelEnv], capsys: pytest.CaptureFixture[str]
) -> None:
    parallel_api_test(make(illegal_actions="next"), num_cycles=100)
    assert "Passed Parallel API test" in capsys.readouterr().out
    parallel_seed_test(lambda: make(illegal_actions="next"), num_cycles=30)


@each_make
@given(seed=st.integers(0, 10**6))
def test_observations_and_actions_are_in_their_spaces(
    make: Callable[..., GameParallelEnv], seed: int
) -> None:
    env = make(illegal_actions="next")
    observations, infos = env.reset(seed=seed)
    for i, agent in enumerate(env.possible_agents):
        env.action_space(agent).seed(seed + i)
    for _ in range(20):
        for agent, seen in observations.items():
            assert seen in env.observation_space(agent)
            assert agent in infos
        if not env.agents:
            break
        actions = {agent: env.action_space(agent).sample() for agent in env.agents}
        observations, *_, infos = env.step(actions)
    env.close()
    env.close()


def play_guest(agents: Sequence[Agent], *, seed: int) -> None:
    """The second agent takes part in every other episode, and the first not in some."""
    num_turns = [seed % 3, (seed + 1) % 2]
    for i, agent in enumerate(agents):
        for step in range(num_turns[i]):
            if agent.act(Obs(step).entities([Runner(i)]), Move) is None:
                return
        if num_turns[i] or (i and not any(num_turns)):
            agent.game_over(Obs(num_turns[i]))


guest = Game(play_guest, entities=(Runner,), actions=(Move,), num_agents=2, name="guest")


@pytest.mark.parametrize("make", [GameParallelEnv, GameAECEnv])
def test_episodes_end_also_for_agents_that_take_no_part(make: Any) -> None:  # noqa: ANN401
    env = make(guest)
    for seed in range(12):
        env.reset(seed=seed)
        while env.agents:
            if make is GameAECEnv:
                is_over = env.terminations[env.agent_selection]
                env.step(None if is_over else 0)
            else:
                env.step(dict.fromkeys(env.agents, 0))


@pytest.mark.parametrize(
    ("game", "options"),
    [
        (snake, {"max_entities": SNAKES}),
        (multi_snake, {"max_entities": SNAKES, "num_snakes": 2}),
        (both, {}),
    ],
)
def test_a_game_for_one_agent_is_its_gymnasium_environment(
    game: Game, options: dict[str, Any]
) -> None:
    one, env = GameEnv(game, **options), GameParallelEnv(game, **options)
    assert one.action_space == env.action_space("player_0")
    for seed in (3, None, 8):
        shown, info = one.reset(seed=seed)
        observations, infos = env.reset(seed=seed)
        is_over = False
        while not is_over:
            seen = observations["player_0"]
            flat = seen["observation"] if isinstance(seen, dict) else seen
            expected: Any = spaces.flatten(one.observation_space, shown)
            np.testing.assert_array_equal(flat, expected)
            assert str(infos["player_0"].get("action_mask")) == str(info.get("action_mask"))
            action = env.action_space("player_0").sample()
            shown, reward, over, cut, info = one.step(action)
            observations, rewards, ends, cuts, infos = env.step({"player_0": action})
            assert (rewards, ends, cuts) == (
                {"player_0": reward},
                {"player_0": over},
                {"player_0": cut},
            )
            is_over = over or cut
        assert env.agents == []
    one.close()
    env.close()


def test_agents_leave_one_after_another() -> None:
    env = GameParallelEnv(relay, length=1)
    _, infos = env.reset(seed=1)
    told = []
    while env.agents:
        asked = [agent for agent in env.agents if infos[agent]["action_mask"].any()]
        _, rewards, over, cut, infos = env.step(dict.fromkeys(asked, 1))
        told.append((asked, rewards, [a for a in over if over[a]], [a for a in cut if cut[a]]))
    a, b, c = env.possible_agents
    assert told == [
        ([a], {a: 1, b: 0, c: 0}, [a], []),
        ([b], {b: 1, c: 0}, [], []),
        ([b], {b: 1, c: 0}, [], [b]),
        ([c], {c: 1}, [], []),
        ([c], {c: 1}, [], []),
        ([c], {c: 1}, [c], []),
    ]
    with pytest.raises(ProtocolError, match="call reset before step"):
        env.step({})
    env.close()


def test_wrong_actions_change_nothing() -> None:
    env = GameParallelEnv(tic_tac_toe, max_entities=SQUARES)
    observations, _ = env.reset(seed=1)
    (first,) = [agent for agent in env.agents if observations[agent]["action_mask"].any()]
    with pytest.raises(SchemaError, match=f"an action of {first} is missing: got "):
        env.step({})
    env.step({first: 0})
    (asked,) = set(env.agents) - {first}
    with pytest.raises(SchemaError, match="its mask forbids"):
        env.step({asked: 0})
    with pytest.raises(SchemaError, match="9"):
        env.step({asked: 9})
    with pytest.raises(SchemaError, match=r"needs the shape \(2,\) and integers"):
        env.step({asked: 1.5})
    observations, *_ = env.step({asked: 1})
    assert observations[first]["action_mask"].tolist() == [0, 0, 1, 1, 1, 1, 1, 1, 1]
    env.close()
    wide = GameParallelEnv(both)
    wide.reset(seed=1)
    with pytest.raises(SchemaError, match="player_0 needs a dict of the actions Move, Speed: got"):
        wide.step({"player_0": {"Move": [0, 1]}})
    wide.close()
    with pytest.raises(ProtocolError, match="call reset before step"):
        GameParallelEnv(both).step({})


@pytest.mark.slow
def test_there_and_back_is_a_game() -> None:
    game = from_pettingzoo(GameParallelEnv, game=rock_paper_scissors)
    assert game.num_agents == 2
    check_game(game, episodes=2)


def test_it_is_drawn_when_it_should_be() -> None:
    env = GameParallelEnv(rock_paper_scissors, render_mode="rgb_array")
    env.reset(seed=1)
    image = env.render()
    assert image is not None
    assert image.shape[2] == 3
    env.close()
    plain = GameParallelEnv(rock_paper_scissors)
    plain.reset(seed=1)
    assert plain.render() is None
    plain.close()


# --------------------------------------------------------------------------- masks of a GameEnv


@pytest.mark.parametrize(
    ("game", "options", "shape"),
    [
        (snake, {"max_entities": SNAKES}, (4,)),
        (cherry_pick, {"max_entities": {"Cherry": 16}}, None),
        (multi_snake, {"max_entities": SNAKES, "num_snakes": 3}, (12,)),
        (multi_snake, {"max_entities": SNAKES, "max_actors": {"Move": 9}}, (36,)),
    ],
)
def test_masks_are_flat_for_other_trainers(
    game: Game, options: dict[str, Any], shape: tuple[int, ...] | None
) -> None:
    env = GameEnv(game, **options)
    _, info = env.reset(seed=1)
    for _ in range(10):
        mask = env.action_masks()
        assert mask.dtype == np.bool_
        assert shape is None or mask.shape == shape
        np.testing.assert_array_equal(mask, np.ravel(info["action_mask"]))
        given = info["action_mask"]
        is_wide = isinstance(env.action_space, spaces.MultiDiscrete)
        action = env.action_space.sample(tuple(given) if is_wide else given)
        mask[:] = False  # it belongs to the caller
        _, _, terminated, truncated, info = env.step(action)
        if terminated or truncated:
            assert not env.action_masks().any()
            _, info = env.reset()
    env.close()


def test_masks_reach_through_wrappers() -> None:
    env = gymnasium.wrappers.TimeLimit(GameEnv(snake, max_entities=SNAKES), 5)
    env.reset(seed=1)
    assert env.get_wrapper_attr("action_masks")().all()
    env.close()


def test_several_actions_have_no_flat_mask() -> None:
    env = GameEnv(both)
    env.reset(seed=1)
    with pytest.raises(UsageError, match="action_masks is for a Discrete or MultiDiscrete"):
        env.action_masks()
    env.close()
