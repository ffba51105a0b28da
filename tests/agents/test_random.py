"""RandomAgent: legal choices, all equally likely, reproducible with a seed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from entity_env import (
    ContinuousActionSpace,
    Obs,
    Schema,
    VecCategoricalActionMask,
    VecSelectEntityActionMask,
)
from entity_env.agents import RandomAgent, random_actions
from entity_env.batching.obs_batcher import ObsBatcher
from tests.helpers.batches import finish
from tests.helpers.strategies import (
    CALL,
    EAT,
    FEW,
    MOVE,
    SCHEMA,
    STEER,
    Food,
    Move,
    Rock,
    Scene,
    Stance,
    World,
    scenes,
)

WORLD = World(0.0, Stance.CALM)
MASK = np.array([[1, 0, 1, 0], [0, 1, 0, 0], [1, 1, 1, 1]])


@FEW
@given(st.lists(scenes(), max_size=4), st.integers(0, 99))
def test_whole_batches_get_legal_answers(shown: list[Scene], seed: int) -> None:
    writer = ObsBatcher(SCHEMA)
    for scene in shown:
        writer.add(scene.obs(), scene.asked)
    batch = finish(writer)
    answers = random_actions(batch, SCHEMA.action_space(), np.random.default_rng(seed))
    assert list(answers) == ["move", "call", "eat", "steer"]
    for name, space in SCHEMA.action_space().items():
        mask, values = batch.action_masks[name], answers[name]
        assert len(values) == len(mask.actors.values)
        if isinstance(space, ContinuousActionSpace):
            assert values.dtype == np.float32
            assert values.shape == (len(values), 2)
            assert ((values >= space.low) & (values <= space.high)).all()
        elif isinstance(mask, VecCategoricalActionMask):
            assert values.dtype == np.int64
            assert ((values >= 0) & (values < 4)).all()
            assert mask.mask is None or mask.mask.values[np.arange(len(values)), values].all()
        elif isinstance(mask, VecSelectEntityActionMask):
            assert_legal(mask, values)


def assert_legal(
    mask: VecSelectEntityActionMask, values: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> None:
    for actor, row in enumerate(mask.actors.row_index):
        num_actees = int(mask.actees.lengths[row])
        assert 0 <= values[actor] < num_actees
        if mask.mask is not None:
            first = int(mask.actors.offsets[row])
            allowed = mask.mask[row].reshape(-1, num_actees)
            assert allowed[actor - first, values[actor]]


def masked(num_rows: int) -> ObsBatcher:
    """Each observation asks three actors with `MASK`, and one to select one of three foods."""
    writer = ObsBatcher(SCHEMA)
    foods = [Food(1.0), Food(2.0), Food(3.0)]
    for _ in range(num_rows):
        obs = Obs().actors([Rock()] * 3, MOVE, STEER).actors([Rock()], EAT).entities(foods)
        obs.globals(WORLD).mask(MOVE, MASK).mask(EAT, [[True, False, True]])
        writer.add(obs, [MOVE, CALL, EAT, STEER])
    return writer


def test_choices_are_uniform_over_what_is_allowed() -> None:
    batch = finish(masked(3000))
    answers = random_actions(batch, SCHEMA.action_space(), np.random.default_rng(1))
    moves = answers["move"].reshape(-1, 3)
    for actor, allowed in enumerate(MASK):
        share = np.bincount(moves[:, actor], minlength=4) / len(moves)
        assert share == pytest.approx(allowed / allowed.sum(), abs=0.04)
    assert np.bincount(answers["call"], minlength=4) / 3000 == pytest.approx([0.25] * 4, abs=0.04)
    assert np.bincount(answers["eat"], minlength=3) / 3000 == pytest.approx([0.5, 0, 0.5], abs=0.04)
    low, high = answers["steer"].min(axis=0), answers["steer"].max(axis=0)
    assert low == pytest.approx([-1, 0], abs=0.01)
    assert high == pytest.approx([1, 5], abs=0.01)


def test_no_actors_get_no_actions() -> None:
    writer = ObsBatcher(SCHEMA)
    obs = Obs().actors([]).globals(WORLD).mask(EAT, []).mask(MOVE, [])
    writer.add(obs, [MOVE, EAT, STEER])
    answers = random_actions(finish(writer), SCHEMA.action_space(), np.random.default_rng(1))
    assert {name: len(values) for name, values in answers.items()} == dict.fromkeys(answers, 0)


@pytest.mark.slow
def test_an_agent_is_uniform_and_repeats_itself() -> None:
    def moves(seed: int | None) -> list[Move | None]:
        agent = RandomAgent(seed)
        obs = Obs().mask(Move, [True, False, True, True])
        return [agent.act(obs, Move) for _ in range(900)]

    chosen = moves(3)
    assert chosen == moves(3)
    assert chosen != moves(4)
    assert moves(None) != moves(None)
    counts = [chosen.count(move) / 900 for move in Move]
    assert counts == pytest.approx([1 / 3, 0, 1 / 3, 1 / 3], abs=0.06)


def test_an_agent_answers_every_kind_of_question() -> None:
    agent = RandomAgent(1)
    foods = [Food(1.0), Food(2.0)]
    obs = Obs().actors([Rock(), Rock()]).entities(foods)
    answers = agent.act(obs, MOVE, EAT, STEER)
    assert answers is not None
    moves, picked, values = answers
    assert set(moves) <= set(Move)
    assert all(any(food is one for one in foods) for food in picked)
    assert values.shape == (2, 2)
    assert agent.act(Obs().actors([]), MOVE) == []


def test_masks_wider_than_others_do_not_spill() -> None:
    schema = Schema((Rock, Food), (EAT,))
    writer = ObsBatcher(schema)
    for count in (1, 5, 2):
        foods = [Food(float(i)) for i in range(count)]
        allowed = np.eye(count, dtype=np.bool_)[-1:]
        writer.add(Obs().actors([Rock()]).entities(foods).mask(EAT, allowed), [EAT])
    answers = random_actions(finish(writer), schema.action_space(), np.random.default_rng(1))
    assert answers["eat"].tolist() == [0, 4, 1]
