"""Mistakes that a type checker must find: it would report an unused `type: ignore`."""

from collections.abc import Mapping

from entity_env import (
    Action,
    ActionSpace,
    Categorical,
    Continuous,
    Environment,
    Game,
    Obs,
    Observation,
    ObsSpace,
    SelectEntity,
)
from entity_env.agents import Agent
from tests.project.typing.answers import MOVES, PICK, Cherry, Move


def forgets_none(agent: Agent, obs: Obs) -> str:
    return agent.act(obs, Move).name  # type: ignore[union-attr]


def takes_a_list_for_one(agent: Agent, obs: Obs) -> Move | None:
    return agent.act(obs, MOVES)  # type: ignore[return-value]


def takes_one_for_a_list(agent: Agent, obs: Obs) -> list[Move] | None:
    return agent.act(obs, Move)  # type: ignore[return-value]


def takes_another_class(agent: Agent, obs: Obs) -> list[Move] | None:
    return agent.act(obs, PICK)  # type: ignore[return-value]


def takes_two_for_three(agent: Agent, obs: Obs) -> None:
    answers = agent.act(obs, Move, PICK)
    if answers is not None:
        _one, _two, _three = answers  # type: ignore[misc]


def takes_an_answer_that_is_not_there_yet(agent: Agent, obs: Obs) -> Move | None:
    return agent.act_async(obs, Move)  # type: ignore[return-value]


def asks_for_nothing(agent: Agent, obs: Obs) -> None:
    agent.act(obs)  # type: ignore[call-overload]


def asks_for_a_member(agent: Agent, obs: Obs) -> None:
    agent.act(obs, Move.UP)  # type: ignore[call-overload]


def asks_for_a_name(agent: Agent, obs: Obs) -> None:
    agent.act(obs, "Move")  # type: ignore[call-overload]


def shows_no_observation(agent: Agent) -> None:
    agent.act([1, 2], Move)  # type: ignore[call-overload]


def shows_a_single_entity(cherry: Cherry) -> None:
    Obs().entities(cherry)  # type: ignore[arg-type]


def shows_a_generator(cherries: list[Cherry]) -> None:
    Obs().entities(cherry for cherry in cherries)  # type: ignore[arg-type]


def masks_with_numbers() -> None:
    Obs().mask(Move, [0.5, 1.0])  # type: ignore[arg-type]


def ends_with_a_score(agent: Agent) -> None:
    agent.game_over(3.0)  # type: ignore[arg-type]


def declares_instances(cherry: Cherry) -> None:
    Game(lambda agent, *, seed: None, entities=[cherry], actions=[])  # type: ignore[list-item]


def declares_a_name() -> None:
    Game(lambda agent, *, seed: None, entities=[], actions=["Move"])  # type: ignore[list-item]


def makes_actions_of_the_wrong_things() -> None:
    Categorical([Move])  # type: ignore[arg-type]
    SelectEntity(Cherry(1.0))  # type: ignore[arg-type]
    Continuous("turn", low=0, high=1)  # type: ignore[arg-type]


def forgets_the_reward() -> Observation:
    return Observation(done=False)  # type: ignore[call-arg]


class Deaf(Environment):
    def obs_space(self) -> ObsSpace:
        return ObsSpace()

    def action_space(self) -> Mapping[str, ActionSpace]:
        return {}

    def reset(self, *, seed: int | None = None) -> Observation:
        return Observation(reward=0.0)

    def act(self) -> Observation:  # type: ignore[override]
        return Observation(reward=0.0)


def steps_with_numbers(env: Environment) -> Action | None:
    env.act({"move": 3})  # type: ignore[dict-item]
    return None
