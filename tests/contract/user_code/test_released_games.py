"""Games that are no longer used are released, with their classes, however they were played."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import make_dataclass
from typing import Annotated, Any
from weakref import ref

import numpy as np
import pytest

from entity_env import Categorical, Composite, EpisodeEnv, Game, Obs, Range, SelectEntity
from entity_env.agents import RandomAgent, random_actions
from entity_env.agents.scripted_agent import Bot, ScriptedAgent
from entity_env.check import check_game
from entity_env.errors import ContractError, EntityEnvError
from entity_env.replay import record
from entity_env.vec import VecEnv
from entity_env.vec.external import game as external_game
from entity_env.views.load_look import find_look
from tests.helpers.strategies import make_enum
from tests.vec.external.test_faults import liar


class First(ScriptedAgent):
    """Takes the first legal choice of everything."""

    def choose(self, obs: Obs, *actions: Any) -> object:  # noqa: ANN401
        _, both, each, send, select = actions
        how = obs.allowed(each)[0][0]
        target = obs.allowed(select)[0][0]
        decision = send.cls(how, target, 0.5)
        return how, obs.allowed(both)[0], [how], [decision], [target]


def made(*, slots: bool = True) -> tuple[Game, Sequence[ref[Any]]]:
    """A game with classes of its own, and references to all of them."""
    move = make_enum("Move", ["A", "B"])
    rat = make_dataclass("Rat", [("x", float), ("kind", move)], slots=slots)
    dot = make_dataclass("Dot", [("x", float), ("y", int)], slots=slots)
    near = make_dataclass("Near", [("source", rat), ("target", dot), ("far", float)])
    totals = make_dataclass("Totals", [("t", float)])
    much = Annotated[float, Range(0, 1)]
    send = make_dataclass("Send", [("how", move), ("to", dot), ("much", much)], frozen=True)
    both = make_dataclass("Both", [("a", move), ("b", move)], frozen=True)
    keys: Any = move, both, Categorical(move, "each"), Composite(send), SelectEntity(dot)

    def play(agent: Any, *, seed: int, num_steps: int = 3) -> None:  # noqa: ANN401
        for i in range(num_steps):
            rats, dots = [rat(1.0, move.A)], [dot(1.0, 2), dot(2.0, 3)]
            obs = Obs(i).actors(rats).entities(dots).globals(totals(1.0))
            if agent.act(obs.relations([near(rats[0], dots[1], 0.5)]), *keys) is None:
                return
        agent.game_over(Obs(num_steps).entities([dot(0.0, 1)]).globals(totals(1.0)))

    game = Game(
        play,
        entities=(rat, dot),
        relations=(near,),
        global_features=totals,
        actions=keys,
        name="released",
    )
    return game, [*map(ref, (move, rat, dot, near, totals, send, both, play, game))]


def in_vec_env(game: Game, num_workers: int = 0) -> None:
    with VecEnv(game, 3, num_workers=num_workers) as vec:
        obs, rng = vec.reset(seed=1), np.random.default_rng(0)
        for _ in range(5):
            obs = vec.act(random_actions(obs, vec.action_space(), rng))


def in_episode_env(game: Game) -> None:
    with EpisodeEnv.of(game) as env:
        env.reset()


def in_replay(game: Game) -> None:
    replay = record(game, RandomAgent(seed=1), seed=1)
    assert replay.verify(game) is None
    assert list(replay.turns(game))


def in_check(game: Game) -> None:
    with suppress(ContractError):
        check_game(game)


def in_error(game: Game) -> None:
    with suppress(EntityEnvError, TypeError):
        game.with_settings(num_steps=None).run(RandomAgent(seed=1))


WAYS: dict[str, Callable[[Game], object]] = {
    "run": lambda game: game.run(RandomAgent(seed=1)),
    "bot": lambda game: game.run(Bot(First)(1)),
    "vec": in_vec_env,
    "workers": lambda game: in_vec_env(game, 1),
    "unclosed": lambda game: VecEnv(game, 2).reset(),
    "episodes": in_episode_env,
    "replay": in_replay,
    "look": find_look,
    "error": in_error,
    "check": in_check,
}


@pytest.mark.parametrize("slots", [True, False], ids=["slots", "plain"])
@pytest.mark.parametrize(
    "way",
    [pytest.param(way, marks=[pytest.mark.slow] * (way in ("workers", "check"))) for way in WAYS],
)
def test_a_game_is_released_with_its_classes(way: str, slots: bool) -> None:
    game, classes = made(slots=slots)
    WAYS[way](game)
    del game
    gc.collect()
    gc.collect()  # a suspended game is ended by the first one
    assert [found for each in classes if (found := each()) is not None] == []


def test_described_programs_are_released() -> None:
    game = liar()
    names = ("command", "folder", "link", "address", "source", "hello", "settings")
    fields = {name: getattr(game, name) for name in names}
    again = external_game._again(fields, game.ready)  # as in a worker, without a process
    all_kinds: list[Any] = list(again.schema.kinds)
    kinds = [type(kind.choices[0]) for kind in all_kinds]
    classes = [ref(cls) for cls in (*kinds, *(each.cls for each in again.schema.entities))]
    assert len(classes) == 2
    del again, all_kinds, kinds
    gc.collect()
    assert [found for each in classes if (found := each()) is not None] == []
