"""Actions of a batch: all are checked before any is performed; errors name env and action."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

from entity_env import ContinuousActionSpace, Game, Obs, RaggedArray, SchemaError
from entity_env.agents import Agent
from entity_env.agents.random import random_actions
from entity_env.core.vec_actions import checked_vec_actions
from entity_env.vec import VecEnv
from tests.helpers.executors import Row, plain_batch
from tests.helpers.tiny_games import (
    EACH,
    PICK,
    STEER,
    Cat,
    Dog,
    Dot,
    Ghost,
    Move,
    Turn,
    Weather,
    chaos,
    dots_game,
    together,
)


class Play:
    """Asks all kinds of actions at once, of the environment's ghosts; the score counts them."""

    def __init__(self, num_ghosts: Sequence[int]) -> None:
        self._left = list(num_ghosts)

    def __call__(self, agent: Agent, *, seed: int) -> None:
        act: Any = agent.act
        num_ghosts = self._left.pop(0)
        score = 0
        while True:
            obs = Obs(score).globals(Weather(0)).entities([Cat(1, 2)])
            obs.entities([Dog(Turn.ON, i) for i in range(num_ghosts + 1)])
            obs.actors([Ghost() for _ in range(num_ghosts)])
            obs.mask(Move, [True, True, False])
            if num_ghosts:
                obs.mask(EACH, [[True, i > 0] for i in range(num_ghosts)])
                obs.mask(PICK, [[j != i for j in range(num_ghosts + 1)] for i in range(num_ghosts)])
            if act(obs, Move, EACH, PICK, STEER) is None:
                return
            score += 1


GHOSTS = (2, 0, 1)
"""Number of ghosts in each of three environments."""


@pytest.fixture
def vec() -> Iterator[VecEnv]:
    game = Game(
        Play(GHOSTS),
        entities=(Cat, Dog, Ghost),
        actions=(Move, EACH, PICK, STEER),
        global_features=Weather,
        name="ghosts",
    )
    with VecEnv(game, len(GHOSTS)) as vec:
        vec.reset()
        yield vec


def good() -> dict[str, NDArray[Any]]:
    """Valid choices for three environments with two, zero and one ghosts."""
    return {
        "Move": np.array([0, 1, 1]),
        "Turn": np.array([0, 1, 0]),
        "SelectDog": np.array([1, 2, 1]),
        "steer": np.array([[0, 0], [-1, 2], [1, 1]], np.float32),
    }


def ragged(values: Sequence[Any], lengths: Sequence[int]) -> RaggedArray[Any]:
    return RaggedArray(np.array(values), np.array(lengths))


# The contract tests of vector environments cover wrong numbers, types and shapes.
BAD: dict[str, tuple[str, object, str]] = {
    "masked for one": ("Turn", np.array([1, 0, 0]), "'Turn': actor 0 of env 0 chose 1, which its"),
    "actee above": (
        "SelectDog",
        np.array([1, 0, 2]),
        "'SelectDog': actor 0 of env 2 chose 2, expected 0 to 1",
    ),
    "actee masked": (
        "SelectDog",
        np.array([1, 1, 1]),
        "'SelectDog': actor 1 of env 0 chose 1, which its mask forbids",
    ),
    "width": (
        "steer",
        np.zeros((3, 3), np.float32),
        r"'steer' needs the shape \(num_actors, 2\), got \(3, 3\)",
    ),
    "flat": ("steer", np.zeros(3, np.float32), r"'steer' needs the shape .* got \(3,\)"),
    "words": ("steer", np.array([["a", "b"]] * 3), "'steer' needs numbers"),
    "out of bounds": (
        "steer",
        np.array([[0, 0], [0, 0], [0, -0.5]]),
        "env 2: action 'steer': actor 0 chose -0.5 for 'gas', expected 0.0 to 2.0",
    ),
    "not a number": (
        "steer",
        np.array([[0, 0], [np.nan, 0], [0, 0]]),
        "env 0: action 'steer': actor 1 chose nan for 'wheel'",
    ),
    "unknown": ("Jump", np.zeros(3, int), "'Jump' is not in the action space, which has Move"),
}


class TestRefused:
    @pytest.mark.parametrize(("name", "values", "message"), BAD.values(), ids=BAD)
    def test_and_nothing_happens(
        self, vec: VecEnv, name: str, values: object, message: str
    ) -> None:
        assert vec.act(good()).reward.tolist() == [1, 1, 1]
        bad: Any = {**good(), name: values}
        if values is None:
            del bad[name]
        with pytest.raises(SchemaError, match=message):
            vec.act(bad)
        assert vec.act(good()).reward.tolist() == [1, 1, 1]

    @pytest.mark.parametrize("actions", [None, np.zeros(3), [("Move", 0)]])
    def test_no_mapping_at_all(self, vec: VecEnv, actions: Any) -> None:  # noqa: ANN401 - wrong on purpose
        with pytest.raises(SchemaError, match="must be a mapping"):
            vec.act(actions)
        vec.act(good())

    def test_names_the_agent_too(self) -> None:
        def play(agents: Sequence[Agent], *, seed: int) -> None:
            pending = [agent.act_async(Obs().entities([Dot(0)]), Move) for agent in agents]
            for answer in pending:
                answer.get()

        with VecEnv(dots_game(play, num_agents=2), 2) as vec:
            vec.reset()
            with pytest.raises(SchemaError, match="'Move': env 1, agent 0 chose 3"):
                vec.act({"Move": np.array([0, 0, 3, 0])})


class TestAccepted:
    @pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8, np.int8])
    def test_integers_of_any_width(self, vec: VecEnv, dtype: type[np.integer]) -> None:
        actions: Any = {**good(), "Move": np.array([0, 1, 1], dtype)}
        assert vec.act(actions).reward.tolist() == [1, 1, 1]

    def test_lists(self, vec: VecEnv) -> None:
        actions: Any = {name: values.tolist() for name, values in good().items()}
        assert vec.act(actions).reward.tolist() == [1, 1, 1]

    def test_ragged_arrays(self, vec: VecEnv) -> None:
        lengths = {"Move": [1, 1, 1]}
        actions = {
            name: ragged(values.tolist(), lengths.get(name, GHOSTS))
            for name, values in good().items()
        }
        assert vec.act(actions).reward.tolist() == [1, 1, 1]

    def test_values_at_the_bounds(self, vec: VecEnv) -> None:
        vec.act({**good(), "steer": np.array([[-1, 0], [1, 2], [1, 0]], np.float32)})

    def test_float64(self, vec: VecEnv) -> None:
        actions: Any = {**good(), "steer": np.zeros((3, 2), np.float64)}
        assert vec.act(actions).reward.tolist() == [1, 1, 1]

    def test_actions_are_taken_when_they_are_sent(self, vec: VecEnv) -> None:
        actions = good()
        vec.send(actions)
        for values in actions.values():
            values[:] = 99
        assert vec.recv().reward.tolist() == [1, 1, 1]

    @pytest.mark.parametrize("empty", [np.zeros(0), np.zeros(0, int), []])
    def test_an_action_without_actors(self, empty: Any) -> None:  # noqa: ANN401 - arrays or a list
        game = Game(
            Play([0]),
            entities=(Cat, Dog, Ghost),
            actions=(Move, EACH, PICK, STEER),
            global_features=Weather,
            name="no ghosts",
        )
        with VecEnv(game, 1) as vec:
            vec.reset()
            vec.act({"Move": np.zeros(1, int)})  # may be omitted
            vec.act({"Move": np.zeros(1, int), "Turn": empty, "SelectDog": empty, "steer": empty})
            with pytest.raises(SchemaError, match="'Turn' needs 0 values, one per actor: got 1"):
                vec.act({"Move": np.zeros(1, int), "Turn": np.zeros(1, int)})


def illegal(rows: Sequence[Row], name: str, values: NDArray[Any]) -> list[tuple[int, int]]:
    """Row and choice of illegal actions, actor by actor, out-of-range choices first."""
    asked = [(i, may) for i, row in enumerate(rows) for may in row.asked[name].allowed]
    chosen = [(i, may, int(value)) for (i, may), value in zip(asked, values, strict=True)]
    beyond = [(i, value) for i, may, value in chosen if not 0 <= value < len(may)]
    return beyond or [(i, value) for i, may, value in chosen if not may[value]]


@settings(max_examples=30)
@given(st.integers(0, 2**32), st.integers(1, 5), st.sampled_from([chaos, together]))
def test_the_first_illegal_choice_is_named(seed: int, num_envs: int, game: Game) -> None:
    rng, spaces = np.random.default_rng(seed), (game.obs_space(), game.action_space())
    with VecEnv(game, num_envs, seed=seed) as vec:
        obs = vec.reset()
        for _ in range(4):
            actions = random_actions(obs, spaces[1], rng)
            for name, values in actions.items():
                other = values + rng.integers(-1, 2, values.shape)
                rows = [row for row in plain_batch(obs, spaces).rows if name in row.asked]
                where = np.flatnonzero(obs.action_masks[name].actors.lengths)
                changed = {**actions, name: other}
                if isinstance(spaces[1][name], ContinuousActionSpace):
                    continue
                if wrong := illegal(rows, name, other):
                    words = f"'{name}': .*row {where[wrong[0][0]]} chose {wrong[0][1]},"
                    with pytest.raises(SchemaError, match=words):
                        checked_vec_actions(changed, obs.action_masks, spaces[1], "row {}".format)
                else:
                    found = checked_vec_actions(
                        changed, obs.action_masks, spaces[1], "row {}".format
                    )
                    assert found[name].tolist() == other.tolist()
            obs = vec.act(actions)
