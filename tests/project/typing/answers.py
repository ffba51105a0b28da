"""Types of an agent's actions; checked by the type checker, never run."""

from dataclasses import dataclass
from enum import Enum
from typing import assert_type

import numpy as np
from numpy.typing import NDArray

from entity_env import Categorical, Continuous, GlobalCategorical, Obs, SelectEntity
from entity_env.agents import Agent, Pending


class Move(Enum):
    UP = 0
    DOWN = 1


@dataclass(frozen=True)
class Steering:
    direction: Move
    thrust: Move


@dataclass
class Cherry:
    quality: float


MOVES = Categorical(Move)
PICK = SelectEntity(Cherry)
TURN = Continuous("turn", low=[0], high=[1])


def one_question(agent: Agent, obs: Obs) -> None:
    assert_type(agent.act(obs, Move), Move | None)
    assert_type(agent.act(obs, Steering), Steering | None)
    assert_type(agent.act(obs, GlobalCategorical(Move, "again")), Move | None)
    assert_type(agent.act(obs, MOVES), list[Move] | None)
    assert_type(agent.act(obs, Categorical(Steering)), list[Steering] | None)
    assert_type(agent.act(obs, PICK), list[Cherry | None] | None)
    assert_type(agent.act(obs, TURN), NDArray[np.float32] | None)


def several_questions(agent: Agent, obs: Obs) -> None:
    assert_type(agent.act(obs, Move, MOVES), tuple[Move, list[Move]] | None)
    assert_type(agent.act(obs, PICK, Steering), tuple[list[Cherry | None], Steering] | None)
    assert_type(
        agent.act(obs, Move, PICK, TURN),
        tuple[Move, list[Cherry | None], NDArray[np.float32]] | None,
    )


def answers_later(agent: Agent, obs: Obs) -> None:
    one = assert_type(agent.act_async(obs, Move), Pending[Move])
    assert_type(one.get(), Move | None)
    assert_type(agent.act_async(obs, MOVES).get(), list[Move] | None)
    assert_type(
        agent.act_async(obs, PICK, MOVES).get(), tuple[list[Cherry | None], list[Move]] | None
    )
    three = assert_type(
        agent.act_async(obs, Move, PICK, MOVES),
        Pending[tuple[Move, list[Cherry | None], list[Move]]],
    )
    assert_type(three.get(), tuple[Move, list[Cherry | None], list[Move]] | None)


async def answers_awaited(agent: Agent, obs: Obs) -> None:
    assert_type(await agent.act_async(obs, Move), Move | None)


def after_a_check_for_none(agent: Agent, obs: Obs) -> Move:
    move = agent.act(obs, Move)
    if move is None:
        return Move.DOWN
    assert_type(move, Move)
    return move


def a_builder_can_be_chained(cherries: list[Cherry], rows: NDArray[np.float64]) -> Obs:
    obs = Obs(score=1).entities(cherries).entities(tuple(cherries)).entities(rows, of=Cherry)
    assert_type(obs, Obs)
    return obs.actors(cherries, MOVES, PICK).mask(Move, [True, False]).metric("won", 1)
