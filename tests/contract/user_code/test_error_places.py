"""What code of users raises is named with its environment, seed, episode and step on every path."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from entity_env import (
    ActionSpace,
    Entity,
    EntityEnvError,
    Game,
    GlobalCategoricalActionSpace,
    GlobalComposite,
    Obs,
    ObsSpace,
    Range,
    UsageError,
    WorkerError,
)
from entity_env.agents import Agent, RandomAgent, random_actions
from entity_env.core.seeding import EpisodeSeeds
from entity_env.vec import ArrayEnv, BatchVecEnv, VecEnv

AT = 3
"""Step of the failure."""


class Boom(Exception):
    """Of a game."""


class Base(BaseException):
    """Of a game, and not an `Exception`."""


RAISED: list[type[BaseException]] = [Boom]


def boom(*_: object) -> Any:  # noqa: ANN401 - never returns
    raise RAISED[0]("boom")


class BadInt(int):
    __float__ = boom


class BadScore(float):
    __sub__ = __rsub__ = boom


class BadMetrics(dict[str, float]):
    items = boom


class BadList(list[Any]):
    __len__ = boom


class BadArray:
    __array__ = boom

    def __len__(self) -> int:
        return 2


class Move(Enum):
    A = 0
    B = 1


@dataclass(frozen=True)
class Choice:
    move: Move
    much: Annotated[float, Range(0, 1)]
    place: ClassVar[str] = ""

    def __post_init__(self) -> None:
        if Choice.place == "decision":
            Choice.place = ""
            boom()


@dataclass
class Plain:
    x: float


@dataclass(slots=True)
class Slots:
    x: float


@dataclass
class Lazy:
    x: float


Lazy.x = property(boom, lambda *_: None)  # type: ignore[assignment]


@dataclass
class Totals:
    t: float


def change(obs: Obs, place: str) -> Obs:
    """Puts something into an observation that raises when it is read."""
    changes: dict[str, Callable[[], object]] = {
        "feature": lambda: obs.entities([Plain(BadInt(1))]),
        "feature of a slot": lambda: obs.entities([Slots(BadInt(1))]),
        "property": lambda: obs.entities([Lazy(1)]),
        "global": lambda: obs.globals(Totals(BadInt(1))),
        "metric": lambda: obs.metric("m", BadInt(1)),
        "metrics": lambda: setattr(obs, "metrics", BadMetrics(m=1.0)),
        "mask": lambda: obs.mask(Move, BadArray()),  # type: ignore[arg-type]
        "length of a mask": lambda: obs.mask(Move, BadList([True, True])),
        "visible": lambda: obs.visible(Slots, BadList([True])),
        "score": lambda: setattr(obs, "score", BadScore(AT)),
        "play": boom,
    }
    changes.get(place, lambda: None)()
    return obs


def game_of(place: str) -> Game:
    key: Any = GlobalComposite(Choice) if place == "decision" else Move

    def play(agent: Agent, *, seed: int) -> None:
        for i in range(AT + 2):
            Choice.place = place if i == AT - 1 else ""
            obs = Obs(i).entities([Slots(1)]).globals(Totals(1))
            is_last = place == "final"
            if agent.act(change(obs, place if i == AT else ""), key) is None:
                return
            if is_last and i + 1 == AT:
                break
        number = BadInt(1) if place == "final" else 1
        agent.game_over(Obs(AT).entities([Slots(number)]).globals(Totals(1)))

    return Game(
        play,
        entities=(Plain, Slots, Lazy),
        global_features=Totals,
        actions=(Move, GlobalComposite(Choice)),
        name="raises",
    )


NAMED = {
    "feature": "entity Plain: feature 'x' of row 0",
    "feature of a slot": "entity Slots: feature 'x' of row 1",
    "property": "boom, in x)",
    "global": "feature 't' of row 0",
    "metric": "metric",
    "metrics": "metrics cannot be read",
    "mask": "mask of action 'Move'",
    "length of a mask": "",
    "visible": "",
    "score": "",
    "play": "",
    "decision": "",
    "final": "entity Slots: feature 'x' of row 0",
}


@pytest.mark.parametrize("kind", [Boom, StopIteration, Base])
@pytest.mark.parametrize("place", NAMED)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"autoreset": "next_step"},
        {"on_error": "restart"},
        pytest.param({"num_workers": 1}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_in_a_vec_env(options: Any, place: str, kind: type[BaseException]) -> None:  # noqa: ANN401
    RAISED[0] = kind
    if options.get("num_workers"):
        RAISED[0] = Boom  # workers have their own copy of the list
        if kind is not Boom:
            pytest.skip("the class is the same in workers")
    with VecEnv(game_of(place), 2, **options) as vec:
        obs, rng = vec.reset(seed=1), np.random.default_rng(0)
        is_restarted = "on_error" in options and place in ("score", "play", "decision")
        try:
            for _ in range(2 * AT):
                obs = vec.act(random_actions(obs, vec.action_space(), rng))
        except EntityEnvError as error:
            text = str(error)
            assert not is_restarted
            assert NAMED[place] in text or (place in ("mask", "property") and kind is Base)
            assert "env 0" in text
            assert f"seed {EpisodeSeeds(1, 0)[0]}" in text
            assert "episode 0, step" in text
        else:
            assert is_restarted
            assert vec.statistics().num_restarts


@pytest.mark.parametrize("place", [place for place, named in NAMED.items() if named])
def test_in_a_run_of_one_game(place: str) -> None:
    RAISED[0] = Boom
    with pytest.raises((EntityEnvError, Boom)) as caught:
        game_of(place).run(RandomAgent(seed=1))
    assert place == "metrics" or NAMED[place].removesuffix("row 1") in str(caught.value)


class Rules(ArrayEnv):
    """Rules in numpy that fail in one of their methods."""

    def __init__(self, num_envs: int, place: str = "", fail: Callable[[], object] = boom) -> None:
        super().__init__(num_envs, 6)
        self.place, self.fail = place, fail
        self.num_calls: Counter[str] = Counter()

    def _enter(self, method: str) -> None:
        self.num_calls[method] += 1
        if self.place == method and self.num_calls[method] == AT:
            self.fail()

    def obs_space(self) -> ObsSpace:
        return ObsSpace(entities={"Plain": Entity(("x",))})

    def action_space(self) -> Mapping[str, ActionSpace]:
        return {"Move": GlobalCategoricalActionSpace(("A", "B"))}

    def begin(self, env_ids: NDArray[np.int64]) -> None:
        self._enter("begin")

    def advance(self, actions: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        self._enter("advance")
        return np.zeros(self.num_envs), np.zeros(self.num_envs, np.bool_)

    def observe(self, env_ids: NDArray[np.int64] | slice) -> NDArray[np.float64]:
        self._enter("observe")
        return np.zeros((self.num_envs, 1))[env_ids]

    @property
    def legal_masks(self) -> NDArray[np.bool_]:
        self._enter("legal_masks")
        return np.ones((self.num_envs, 2), np.bool_)


def hang() -> None:
    while True:
        pass


def leave() -> None:
    raise SystemExit(3)


def play_batch(
    make: Callable[[int], Rules], num_workers: int, step_timeout_s: float | None
) -> None:
    with BatchVecEnv(make, 2, num_workers, step_timeout_s=step_timeout_s) as vec:
        for _ in range(2):
            vec.reset()
            for _ in range(7):
                vec.act({"Move": np.zeros(2, np.int64)})


@pytest.mark.parametrize(
    ("fail", "reason"),
    [
        (boom, "the game raised Boom: boom"),
        (leave, "the game called sys.exit(3)"),
        pytest.param(hang, "the game hangs: no answer for 1 s", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("method", ["begin", "advance", "observe", "legal_masks"])
@pytest.mark.parametrize("num_workers", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_in_a_batch_environment(
    num_workers: int, method: str, fail: Callable[[], object], reason: str
) -> None:
    RAISED[0] = Boom
    timeout_s = None
    if fail is hang:
        if num_workers or not hasattr(signal, "setitimer"):
            pytest.skip("only in this process, with SIGALRM")
        play_batch(Rules, 0, None)  # compiles
        timeout_s = 1.0
    with pytest.raises(WorkerError) as caught:
        play_batch(partial(Rules, place=method, fail=fail), num_workers, timeout_s)
    assert reason in caught.value.reason
    assert __file__ in caught.value.game_traceback
    assert f"in {method}" in caught.value.game_traceback


@pytest.mark.parametrize("num_workers", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("method", ["__init__", "obs_space", "action_space"])
def test_an_exit_while_environments_are_made_is_named(num_workers: int, method: str) -> None:
    def make(num_envs: int) -> Rules:
        def fail(*_: object) -> Any:  # noqa: ANN401 - never returns
            return leave()

        made: Rules = type("Leaves", (Rules,), {method: fail})(num_envs)
        return made

    with pytest.raises(UsageError) as caught:
        play_batch(make, num_workers, None)
    text = str(caught.value)
    assert text.startswith("while environments were made: sys.exit(3) was called at ")
    assert f"{__file__}:{leave.__code__.co_firstlineno + 1} in leave: it ends the program" in text
