"""Handwritten positions: rejected, or playable, compiled and interpreted."""

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
from hypothesis import given, settings, strategies as st

from entity_env import SchemaError
from entity_env.games.azul import (
    ActionEncoder,
    FastGame,
    GameState,
    apply_in_place,
    legal_actions,
)
from entity_env.games.azul.engine.tile_draws import SplitMix
from entity_env.games.azul.players.mcts import Search, Tree
from tests.games.azul import oracle
from tests.games.azul.recorded_games import SEEDS, states

# Numbers at every place of a dict: impossible ones are rejected, others give a position that
# both engines can play to the end.
NUMBERS = st.one_of(
    st.integers(-2, 21), st.sampled_from((2**25 - 1, 2**25, 2**40, True, 1.0, None))
)


def places(data: object, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths to all values other than lists and dicts."""
    if isinstance(data, dict):
        for key, value in data.items():
            yield from places(value, (*path, key))
    elif isinstance(data, list):
        for i, value in enumerate(data):
            yield from places(value, (*path, i))
    else:
        yield path


def put(data: Any, path: tuple[Any, ...], value: object) -> None:  # noqa: ANN401
    for key in path[:-1]:
        data = data[key]
    data[path[-1]] = value


def played_on(state: GameState, seed: int) -> None:
    """Plays some moves like the oracle; unreachable boards must be playable, too."""
    position, fast = oracle.of(state, SplitMix(seed)), FastGame.from_state(state)
    state.rng, fast.rng = SplitMix(seed), SplitMix(seed)
    rng = random.Random(seed)
    for _ in range(80):
        actions = legal_actions(state)
        assert actions == oracle.legal_actions(position)
        if not actions:
            return
        action = rng.choice(actions)
        apply_in_place(state, action)
        fast.play(ActionEncoder.encode(action))
        oracle.play(position, action)
        assert fast == state
        assert state.to_dict() == position.to_dict()


@settings(max_examples=60)
@given(state=states(), seed=SEEDS, data=st.data())
def test_a_dict_is_refused_or_can_be_played(
    state: GameState, seed: int, data: st.DataObject
) -> None:
    written: Any = state.to_dict()
    ways = list(places(written))
    for path in data.draw(st.lists(st.sampled_from(ways), min_size=1, max_size=3)):
        put(written, path, data.draw(NUMBERS))
    try:
        back = GameState.from_dict(written, rng=np.random.default_rng(seed))
    except SchemaError:
        return
    assert back.to_dict() == written
    played_on(back, seed)


@settings(max_examples=60)
@given(state=states(), moved=st.integers(0, 4), seed=SEEDS)
def test_tiles_moved_from_the_bag_are_refused_or_can_be_played(
    state: GameState, moved: int, seed: int
) -> None:
    """The right number of each color, but in other places, sometimes too many in one."""
    written: Any = state.to_dict()
    rng = random.Random(seed)
    for _ in range(moved):
        colour = rng.randrange(5)
        if written["bag"][colour]:
            to = rng.choice([written["lid"], written["centre"], *written["factories"]])
            written["bag"][colour] -= 1
            to[colour] += 1
    try:
        back = GameState.from_dict(written)
    except SchemaError:
        too_many = any(sum(tiles) > 4 for tiles in written["factories"])
        is_ended = state.is_over and moved > 0
        assert too_many or is_ended
        return
    played_on(back, seed)
    if not back.is_over:
        tree = Tree.empty(1000)
        Search(back, tree, 1, seed).run(10)
        assert tree.visits[0] == 10
