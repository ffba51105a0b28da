"""Our games as PettingZoo AEC environments: PettingZoo's tests, and results step by step."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray
from pettingzoo.test import api_test, max_cycles_test
from pettingzoo.utils.conversions import parallel_to_aec, turn_based_aec_to_parallel

from entity_env import Game, MissingExtraError, Obs, ProtocolError, SchemaError, UsageError
from entity_env.agents import Agent
from entity_env.games import multi_snake, rock_paper_scissors, snake, tic_tac_toe
from entity_env.games.azul import azul, azul_by_id
from entity_env.interop.gymnasium import GameEnv
from entity_env.interop.pettingzoo import GameAECEnv, GameParallelEnv

# Recommendations that dicts with a mask cannot follow; and it prints.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Observation is not a NumPy array",
    "ignore:Observation space for each agent probably should be",
    "ignore:Observation numpy array is all zeros",
    "ignore:Action mask numpy array is all zeros",
)
SQUARES = {"Empty": 9, "Mine": 5, "Theirs": 5}


class Move(Enum):
    STOP = 0
    ON = 1


@dataclass
class Runner:
    """The runner."""

    way: float


def play_relay(agents: Sequence[Agent], *, seed: int, length: int = 3) -> None:
    """Agent i runs alone for `length + i` steps, or until it stops, and is then out."""
    for i, agent in enumerate(agents):
        score = 0.0
        for _ in range(length + i):
            move = agent.act(Obs(score).entities([Runner(score)]), Move)
            if move is None:
                return
            if move is Move.STOP:
                break
            score += 1
        agent.game_over(Obs(score), truncated=i == 1)


relay = Game(play_relay, entities=(Runner,), actions=(Move,), num_agents=3, name="relay")


def play_outs(agents: Sequence[Agent], *, seed: int) -> None:
    """All remaining agents act at once; the first is out before the others."""
    scores = [0.0] * len(agents)
    for step in range(3 + seed % 4):
        left = [i for i in range(len(agents)) if i or step < 2]
        asked = [agents[i].act_async(Obs(scores[i]).entities([Runner(step)]), Move) for i in left]
        for i, answer in zip(left, asked, strict=True):
            move = answer.get()
            if move is None:
                return
            scores[i] += (i + 1) * (move is Move.STOP)
        if step == 1:
            agents[0].game_over(Obs(scores[0]))
    for i, agent in enumerate(agents[1:], 1):
        agent.game_over(Obs(scores[i]), truncated=i == 2)


outs = Game(play_outs, entities=(Runner,), actions=(Move,), num_agents=3, name="outs")


def squares(**options: Any) -> GameAECEnv:  # noqa: ANN401 - those of the class
    return GameAECEnv(tic_tac_toe, max_entities=SQUARES, **options)


def tiles(num_players: int = 2, **options: Any) -> GameAECEnv:  # noqa: ANN401 - those of the class
    return GameAECEnv(azul_by_id, max_entities={"Group": 41}, num_players=num_players, **options)


MAKES: dict[str, Callable[..., GameAECEnv]] = {
    "azul-2": tiles,
    "azul-cut": partial(tiles, 3, max_rounds=1),
    "tic_tac_toe": squares,
}
each_make = pytest.mark.parametrize("make", MAKES.values(), ids=MAKES)


def sampled(env: GameAECEnv, rng: np.random.Generator) -> int:
    mask = env.observe(env.agent_selection)["action_mask"]
    return int(rng.choice(np.flatnonzero(mask)))


def play(env: GameAECEnv, seed: int, rng: np.random.Generator) -> list[tuple[Any, ...]]:
    """One episode: agent, observation, reward and flags of every turn."""
    told: list[tuple[Any, ...]] = []
    env.reset(seed=seed)
    for agent in env.agent_iter():
        observation, reward, terminated, truncated, info = env.last()
        assert observation is not None
        over = terminated or truncated
        action = None if over else sampled(env, rng)
        told.append((agent, observation, reward, terminated, truncated, info, action))
        env.step(action)
    return told


# --------------------------------------------------------------------------- its own tests


@each_make
def test_api(make: Callable[..., GameAECEnv], capsys: pytest.CaptureFixture[str]) -> None:
    api_test(make(), num_cycles=300)
    assert "Passed API test" in capsys.readouterr().out


def cycles(make: Callable[..., GameAECEnv]) -> Any:  # noqa: ANN401 - replaces a module
    """A module for the test, in which a cycle is one turn of each agent. In a parallel environment
    made from turns, a cycle is a single turn."""

    def env(max_cycles: int) -> GameAECEnv:
        num_agents = len(make().possible_agents)
        return seeded(make(max_turns=max_cycles * num_agents, illegal_actions="next", seed=1))

    def parallel_env(max_cycles: int) -> object:
        return turn_based_aec_to_parallel(
            seeded(make(max_turns=max_cycles, illegal_actions="next", seed=1))
        )

    return SimpleNamespace(env=env, parallel_env=parallel_env)


def seeded(env: GameAECEnv) -> GameAECEnv:
    for i, agent in enumerate(env.possible_agents):
        env.action_space(agent).seed(i)
    return env


def test_max_cycles() -> None:
    max_cycles_test(cycles(tiles))


# --------------------------------------------------------------------------- ends


def test_rounds_and_turns_cut_an_episode() -> None:
    rng = np.random.default_rng(0)
    env = tiles(2, max_rounds=1)
    told = play(env, 1, rng)
    assert [row[3:5] for row in told[-2:]] == [(False, True)] * 2
    env = tiles(2, max_turns=5)
    told = play(env, 1, rng)
    assert len(told) == 5 + 2
    assert [row[3:5] for row in told[-2:]] == [(False, True)] * 2
    assert all(not row[1]["action_mask"].any() for row in told[-2:])
    env.reset()
    assert not any(env.truncations.values())
    assert env.observe(env.agent_selection)["action_mask"].any()


def test_an_end_by_the_rules_is_no_cut() -> None:
    lengths = [len(play(tiles(2, max_turns=None), 3, np.random.default_rng(1)))]
    env = tiles(2, max_turns=lengths[0] - 2)
    told = play(env, 3, np.random.default_rng(1))
    assert [row[3:5] for row in told[-2:]] == [(True, False)] * 2


# --------------------------------------------------------------------------- any game


def test_a_game_is_told_by_its_entities() -> None:
    env = squares()
    env.reset(seed=1)
    first = env.agent_selection
    seen = env.observe(first)
    names = list(env.entities.spaces)
    sizes = [int(np.prod(space.shape or ())) for space in env.entities.spaces.values()]
    parts = dict(
        zip(names, np.split(seen["observation"], np.cumsum(sizes)[:-1].tolist()), strict=True)
    )
    assert parts["Empty_mask"].tolist() == [1] * 9
    assert parts["Mine_mask"].tolist() == [0] * 5
    assert parts["Empty"].reshape(9, 2).tolist() == [[x, y] for y in range(3) for x in range(3)]
    assert seen["action_mask"].tolist() == [1] * 9
    env.step(4)
    second = env.agent_selection
    assert second != first
    assert env.observe(second)["action_mask"].tolist() == [1, 1, 1, 1, 0, 1, 1, 1, 1]
    assert not env.observe(first)["action_mask"].any()
    np.testing.assert_array_equal(env.observe(first)["observation"], seen["observation"])


@pytest.mark.parametrize("moves", [[0, 3, 1, 4, 2], [0, 3, 1, 4, 8, 5]])
def test_who_wins_tic_tac_toe_is_rewarded(moves: list[int]) -> None:
    env = squares()
    env.reset(seed=3)
    order = []
    for move in moves:
        order.append(env.agent_selection)
        env.step(move)
    winner = order[-1]
    assert all(env.terminations.values())
    assert {agent: env.rewards[agent] for agent in env.agents} == {
        agent: 1.0 if agent == winner else -1.0 for agent in env.possible_agents
    }


def test_a_seed_is_the_episodes_of_a_gymnasium_environment() -> None:
    """The seed decides who starts; the entities of one agent at a time are equal."""
    starts = []
    for seed in range(6):
        env = squares()
        env.reset(seed=seed)
        starts.append(env.agent_selection)
        env.reset()
        env.reset(seed=seed)
        assert env.agent_selection == starts[-1]
    assert set(starts) == {"player_0", "player_1"}
    single = GameEnv(snake, max_entities={"Segment": 99}, board_size=5)
    assert single.reset(seed=3)[0]["Food"].tolist() == single.reset(seed=3)[0]["Food"].tolist()


def test_agents_that_are_out_before_the_others() -> None:
    env = GameAECEnv(relay, length=2)
    env.reset(seed=0)
    seen: list[tuple[str, bool]] = []
    for agent in env.agent_iter():
        _, _, terminated, truncated, _ = env.last()
        over = terminated or truncated
        seen.append((agent, over))
        assert truncated == (over and agent == "player_1")
        env.step(None if over else 1)
    assert seen == [
        *[("player_0", False)] * 2,
        ("player_0", True),
        *[("player_1", False)] * 3,
        ("player_1", True),
        *[("player_2", False)] * 4,
        ("player_2", True),
    ]


def test_a_game_that_never_asks_is_refused() -> None:
    def play_idle(agents: Sequence[Agent], *, seed: int) -> None:
        for agent in agents:
            agent.game_over(Obs(0.0))

    idle = Game(
        play_idle,
        entities=(Runner,),
        actions=(Move,),
        num_agents=2,
        name="idle",
    )
    with pytest.raises(ProtocolError, match=r"idle: \d+ episodes in a row were over before"):
        GameAECEnv(idle)


def test_a_closed_environment_may_be_closed_again() -> None:
    for make in MAKES.values():
        env = make()
        env.reset(seed=1)
        env.close()
        env.close()


def test_without_a_seed_every_environment_is_another() -> None:
    starts = []
    for _ in range(12):
        env = squares()
        env.reset()
        starts.append(env.agent_selection)
    assert set(starts) == {"player_0", "player_1"}


def test_what_is_refused_in_any_game_is_named_by_its_number() -> None:
    env = squares()
    env.reset(seed=1)
    env.step(0)
    mask = env.observe(env.agent_selection)["action_mask"]
    wrong = int(np.flatnonzero(mask == 0)[0])
    with pytest.raises(SchemaError, match=rf"player_\d may not choose action {wrong} now"):
        env.step(wrong)


def test_rewards_wait_until_an_agent_is_told() -> None:
    env = GameAECEnv(relay, length=2)
    env.reset(seed=0)
    env.step(1)
    assert env.rewards == {"player_0": 1, "player_1": 0, "player_2": 0}
    env.step(0)
    assert env.last()[1:3] == (0, True)
    env.step(None)
    assert env.agent_selection == "player_1"
    assert set(env.rewards) == {"player_1", "player_2"}


def test_azul_by_its_options() -> None:
    env = GameAECEnv(azul, max_entities={"Group": 41, "Option": 246}, max_turns=12)
    assert len(play(env, 5, np.random.default_rng(2))) == 12 + 2
    env.close()


def test_pictures_of_a_game() -> None:
    env = squares(render_mode="rgb_array")
    env.reset(seed=1)
    before = env.render()
    assert before is not None
    assert before.dtype == np.uint8
    env.step(0)
    after = env.render()
    assert after is not None
    assert before.shape == after.shape
    assert not np.array_equal(before, after)
    assert squares().render() is None


# --------------------------------------------------------------------------- simultaneous


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rock_paper_scissors", "outs"])
def test_agents_that_act_at_once_take_turns_as_parallel_to_aec_has_them(name: str) -> None:
    """Observations and rewards of every agent, compared with PettingZoo's wrapper."""
    game = {"rock_paper_scissors": rock_paper_scissors, "outs": outs}[name]
    for seed in range(4):
        ours, theirs = (
            trace(env, seed) for env in (GameAECEnv(game), parallel_to_aec(GameParallelEnv(game)))
        )
        assert ours == theirs
        assert all(len(seen) > 1 for seen in ours.values())


def trace(env: Any, seed: int) -> dict[str, list[Any]]:  # noqa: ANN401 - PettingZoo has no types
    """Results of `last` by agent, turn by turn; live agents act in the order of their names."""
    env.reset(seed=seed)
    seen: dict[str, list[Any]] = {agent: [] for agent in env.possible_agents}
    order = []
    for agent in env.agent_iter():
        obs, reward, terminated, truncated, _ = env.last()
        shown = obs["observation"].tolist(), obs["action_mask"].tolist()
        seen[agent].append((*shown, reward, terminated, truncated))
        over = terminated or truncated
        order += [] if over else [agent]
        env.step(None if over else (seed + 2 * len(order)) % int(env.action_space(agent).n))
    env.close()
    num_first = len(env.possible_agents)
    assert order[:num_first] == env.possible_agents
    return seen


def test_none_sees_what_the_others_have_chosen() -> None:
    env = GameAECEnv(rock_paper_scissors)
    env.reset(seed=1)
    before = env.observe("player_1")["observation"]
    assert env.agent_selection == "player_0"
    env.step(0)
    assert env.agent_selection == "player_1"
    assert (env.observe("player_1")["observation"] == before).all()
    assert env.rewards == {"player_0": 0.0, "player_1": 0.0}
    with pytest.raises(SchemaError, match="player_1 needs an integer from 0 to 2"):
        env.step(7)
    assert env.agent_selection == "player_1"
    env.reset(seed=1)  # drops the first agent's action
    assert env.agent_selection == "player_0"
    env.close()


# --------------------------------------------------------------------------- errors


def test_games_of_more_than_one_choice_are_refused() -> None:
    with pytest.raises(UsageError, match="one choice at a time"):
        GameAECEnv(multi_snake, max_entities={"Segment": 400})


def test_numbers_of_entities_that_vary_must_be_named() -> None:
    with pytest.raises(SchemaError, match="give the largest number, max_entities="):
        GameAECEnv(tic_tac_toe, max_entities={})


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (0, r"player_\d may not choose action 0 now"),
        (300, r"player_\d needs an integer from 0 to 299 as its action: got 300"),
        (-1, "got -1"),
        (None, "got None"),
        (1.0, "got 1.0"),
        (True, "got True"),
        (np.array([1]), r"got array\(\[1\]\)"),
    ],
)
def test_illegal_actions_name_agent_and_action(action: object, message: str) -> None:
    env = tiles(2)
    seed = next(s for s in range(99) if not _first_mask(env, s)[0])
    env.reset(seed=seed)
    before = [env.observe(agent) for agent in env.agents]
    with pytest.raises(SchemaError, match=message):
        env.step(action)  # type: ignore[arg-type]
    for agent, seen in zip(env.agents, before, strict=True):
        np.testing.assert_array_equal(env.observe(agent)["action_mask"], seen["action_mask"])
        np.testing.assert_array_equal(env.observe(agent)["observation"], seen["observation"])


def _first_mask(env: GameAECEnv, seed: int) -> NDArray[np.int8]:
    env.reset(seed=seed)
    mask: NDArray[np.int8] = env.observe(env.agent_selection)["action_mask"]
    return mask


@pytest.mark.parametrize("dtype", [int, np.int32, np.int64, np.uint16, np.array])
def test_every_integer_is_taken(dtype: Callable[[int], Any]) -> None:
    env = tiles(2)
    action = int(_first_mask(env, 1).argmax())
    env.step(dtype(action))
    assert env.agent_selection


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**31), action=st.integers(0, 299))
def test_the_next_one_that_is_allowed(seed: int, action: int) -> None:
    strict, lax = tiles(2), tiles(2, illegal_actions="next")
    mask = _first_mask(strict, seed)
    lax.reset(seed=seed)
    meant = next(i % 300 for i in range(action, action + 300) if mask[i % 300])
    strict.step(meant)
    lax.step(action)
    for agent in strict.agents:
        one, other = strict.observe(agent), lax.observe(agent)
        np.testing.assert_array_equal(one["observation"], other["observation"])
        np.testing.assert_array_equal(one["action_mask"], other["action_mask"])


def test_calls_in_the_wrong_order() -> None:
    env = tiles(2)
    with pytest.raises(ProtocolError, match="no episode has begun"):
        env.step(0)
    with pytest.raises(ProtocolError, match="no episode has begun"):
        env.observe("player_0")
    env = tiles(2, max_turns=1)
    env.reset(seed=1)
    env.step(sampled(env, np.random.default_rng(0)))
    with pytest.raises(SchemaError, match="of player_0 is over: its action must be None"):
        env.step(0)
    env.step(None)
    env.step(None)
    with pytest.raises(ProtocolError, match="the episode is over: call reset"):
        env.step(None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_players": 5}, "num_players"),
        ({"max_turns": 0}, "max_turns"),
        ({"illegal_actions": "skip"}, "illegal_actions must be"),
        ({"render_mode": "ansi"}, "render_mode must be 'rgb_array'"),
    ],
)
def test_settings_that_cannot_be(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        tiles(**options)


def test_a_setting_of_the_game_that_does_not_exist() -> None:
    with pytest.raises(UsageError, match="tic_tac_toe has no setting 'size'"):
        squares(size=4)


def test_without_pettingzoo_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if "interop.pettingzoo" in name]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pettingzoo", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'entity-env\[pettingzoo\]'") as told:
        importlib.import_module("entity_env.interop.pettingzoo")
    assert "\n" not in str(told.value)
