"""check_env and check_game find broken environments and accept correct ones."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from entity_env import (
    Action,
    ActionSpace,
    CategoricalActionMask,
    CategoricalActionSpace,
    ContinuousActionMask,
    ContinuousActionSpace,
    ContractError,
    Entity,
    Environment,
    Game,
    GlobalCategoricalActionMask,
    GlobalCategoricalActionSpace,
    Observation,
    ObsSpace,
    ProtocolError,
    SchemaError,
    SelectEntityActionMask,
    SelectEntityActionSpace,
    check_env,
)
from entity_env.check.violations import Snapshot, difference
from tests.helpers.strategies import untyped


class Sound(Environment):
    """Three fish that swim for five steps; follows the contract."""

    num_steps = 5

    def __init__(self) -> None:
        self.rng = np.random.default_rng()
        self.step = self.num_steps
        self.places = np.zeros((3, 2))

    def obs_space(self) -> ObsSpace:
        return ObsSpace(["step"], {"Fish": Entity(["x", "y"]), "Rock": Entity([])})

    def action_space(self) -> dict[str, ActionSpace]:
        return {
            "swim": CategoricalActionSpace(["left", "right"]),
            "tide": GlobalCategoricalActionSpace(["in", "out"]),
            "eat": SelectEntityActionSpace(),
            "dive": ContinuousActionSpace([0], [10]),
        }

    def reset(self, *, seed: int | None = None) -> Observation:
        self.rng = np.random.default_rng(seed)
        self.step = 0
        self.places = self.rng.normal(size=(3, 2))
        return self.observe()

    def act(self, actions: Mapping[str, Action]) -> Observation:
        if self.step >= self.num_steps:
            raise ProtocolError("the episode is over: call reset")
        self.step += 1
        self.places = self.rng.normal(size=(3, 2))
        return self.observe()

    def observe(self) -> Observation:
        given: dict[str, Any] = {
            "reward": float(self.step > 0),
            "terminated": self.step >= self.num_steps,
            "global_features": [self.step],
            "features": {"Fish": self.places, "Rock": [[], []]},
            "ids": {"Fish": ["a", "b", "c"]},
            "actions": {
                "swim": CategoricalActionMask(actor_ids=["c", "a"]),
                "tide": GlobalCategoricalActionMask([True, self.step % 2 == 0]),
                "eat": SelectEntityActionMask(actor_ids=["a"], actee_types=["Rock"]),
                "dive": ContinuousActionMask(actor_types=["Fish"]),
            },
            "visible": {"Fish": [True, False, True]},
            "metrics": {"depth": 3},
        }
        return Observation(**{**given, **self.changes()})

    def changes(self) -> dict[str, Any]:
        """Hook for broken environments to change the observation."""
        return {}


class Unseeded(Sound):
    def reset(self) -> Observation:  # type: ignore[override]  # as in entity-gym
        return super().reset()


class Blank(Sound):
    """Its last observation is empty; its episodes may be truncated."""

    def changes(self) -> dict[str, Any]:
        if self.step < self.num_steps:
            return {}
        nothing: dict[str, Any] = {"features": {}, "ids": {}, "actions": {}, "visible": {}}
        return {**nothing, "global_features": (), "terminated": False, "truncated": True}


class Lenient(Sound):
    """Returns the final observation again if stepped after the end."""

    def act(self, actions: Mapping[str, Action]) -> Observation:
        self.step = min(self.step, self.num_steps - 1)
        return super().act(actions)


class Quiet(Sound):
    """Sometimes asks no actor and has no rocks."""

    def changes(self) -> dict[str, Any]:
        without_rocks = {"features": {"Fish": self.places, "Rock": []}, "actions": {}}
        return without_rocks if self.step % 2 else {}


@pytest.mark.parametrize("source", [Sound, Unseeded, Blank, Lenient, Quiet, Sound()])
def test_a_sound_environment_passes(source: Callable[[], Environment] | Environment) -> None:
    check_env(source)


def showing(**changes: Any) -> type[Sound]:  # noqa: ANN401
    """An environment whose observations change from its third step on."""

    def change(self: Sound) -> dict[str, Any]:
        return changes if self.step == 3 else {}

    return type("Broken", (Sound,), {"changes": change})


def asking(**masks: Any) -> type[Sound]:  # noqa: ANN401
    return showing(actions=masks)


def features(rows: object) -> type[Sound]:
    return showing(features={"Fish": rows, "Rock": [[], []]})


THREE = [[0.0, 0.0]] * 3
BROKEN_OBSERVATIONS: list[tuple[type[Sound], str]] = [
    (
        features(np.zeros((3, 4))),
        r"entity 'Fish': got the shape \(3, 4\), expected 2 columns: x, y",
    ),
    (features([[0, 0], [0], [0, 0]]), "'Fish': rows have different lengths, expected 2 features"),
    (features([1, 2, 3]), r"got the shape \(3,\)"),
    (features(np.full((3, 2), "a")), "features are <U1, expected numbers"),
    (features(np.full((3, 2), None)), "features are object, expected numbers"),
    (features([[0, np.nan], *THREE[1:]]), "feature 'y' of row 0 is nan, expected a finite"),
    (features([*THREE[1:], [np.inf, 0]]), "feature 'x' of row 2 is inf"),
    (features([[1e39, 0], *THREE[1:]]), r"'x' of row 0 is 1e\+39, expected .* fits float32"),
    (features(None), "the observation cannot be read: TypeError"),
    (showing(features={"Crab": [[1]]}), "entity 'Crab' is not in the observation space, which has"),
    (showing(global_features=[]), r"globals: got the shape \(1, 0\), expected 1 columns: step"),
    (showing(global_features=[np.nan]), "globals: feature 'step' of row 0 is nan"),
    (showing(reward=np.nan), "the reward is nan, expected a finite number"),
    (showing(reward=10**400), "the reward is 1000+, expected"),
    (showing(reward=None), "the reward is None"),
    (showing(metrics={"depth": "deep"}), "the metric 'depth' is 'deep', expected a finite number"),
    (showing(ids={"Fish": ["a", "b", "b"]}), "the duplicate id 'b' of entity 'Fish' belongs"),
    (
        showing(ids={"Fish": ["a", "b", "c"], "Rock": ["a", "z"]}),
        "id 'a' of entity 'Rock' .*'Fish'",
    ),
    (showing(ids={"Fish": ["a"]}), "'Fish': 3 rows of features but 1 ids"),
    (showing(ids={"Crab": []}), "ids are given for entity 'Crab'"),
    (showing(ids={"Fish": ["a", "c", []]}), r"the id \[\] cannot be hashed"),
    (
        showing(visible={"Fish": [True]}),
        r"visible of 'Fish' has the shape \(1,\).*expected 3 bools",
    ),
    (showing(visible={"Fish": [0.5] * 3}), "dtype float64, expected 3 bools"),
    (showing(visible={"Crab": []}), "visible names entity 'Crab'"),
    (
        asking(fly=CategoricalActionMask()),
        "action 'fly' is not in the action space, which has swim",
    ),
    (asking(swim=GlobalCategoricalActionMask()), "'swim' needs a CategoricalActionMask"),
    (asking(swim=CategoricalActionMask(actor_ids=["z"])), "actor 'z' is not among the entities"),
    (asking(swim=CategoricalActionMask(actor_types=["Crab"])), "actor type 'Crab'"),
    (asking(swim=CategoricalActionMask(actor_ids=["a", "a"])), "asks the actor 'a' 2 times"),
    (
        asking(swim=CategoricalActionMask(actor_ids=["a"], mask=[[False, False]])),
        "'swim' leaves actor 0 no legal choice",
    ),
    (
        asking(tide=GlobalCategoricalActionMask([True] * 3)),
        r"choices,\) = \(2,\): got \(3,\)",
    ),
    (asking(tide=GlobalCategoricalActionMask(untyped([1, 2]))), "must hold bools"),
    (asking(eat=SelectEntityActionMask(actee_ids=["z"])), "actee 'z' is not among"),
    (asking(eat=SelectEntityActionMask(actee_types=[])), "no legal choice"),
    (asking(dive=SelectEntityActionMask()), "'dive' needs a ContinuousActionMask"),
]


@pytest.mark.parametrize(("broken", "message"), BROKEN_OBSERVATIONS)
def test_observations_that_do_not_fit_are_found(broken: type[Sound], message: str) -> None:
    with pytest.raises(ContractError, match=rf"episode 0 \(seed \d+\), step 3: .*{message}"):
        check_env(broken, episodes=1)


class Changing(Sound):
    calls = 0

    def obs_space(self) -> ObsSpace:
        self.calls += 1
        return ObsSpace(
            ["step"], {**super().obs_space().entities, "Crab": Entity([str(self.calls)])}
        )


class ChangingActions(Sound):
    calls = 0

    def action_space(self) -> dict[str, ActionSpace]:
        self.calls += 1
        labels = [str(i) for i in range(self.calls)]
        return {**super().action_space(), "more": CategoricalActionSpace(labels)}


class NoSpace(Sound):
    def obs_space(self) -> ObsSpace:
        return untyped({"Fish": ["x", "y"]})  # type: ignore[no-any-return]


class NoActionSpace(Sound):
    def action_space(self) -> dict[str, ActionSpace]:
        return untyped(["swim"])  # type: ignore[no-any-return]


class StrangeSpace(Sound):
    def action_space(self) -> dict[str, ActionSpace]:
        return {"swim": untyped(4)}


class NoSpaces(Sound):
    def action_space(self) -> dict[str, ActionSpace]:
        raise KeyError("lost")


class Random(Sound):
    """Does not use the seed for its random numbers."""

    def changes(self) -> dict[str, Any]:
        return {"global_features": [id(self) + np.random.default_rng().random()]}


class Counting(Sound):
    """Keeps state from the last episode, which reset should clear."""

    num_resets = 0

    def reset(self, *, seed: int | None = None) -> Observation:
        if 0 < self.step < self.num_steps:
            self.num_resets = 1
        return super().reset(seed=seed)

    def changes(self) -> dict[str, Any]:
        return {"global_features": [self.step + self.num_resets]}


class Growing(Sound):
    """Shows an additional type in the second episode."""

    made = 0

    def __init__(self) -> None:
        super().__init__()
        type(self).made += 1

    def changes(self) -> dict[str, Any]:
        return {"features": {"Fish": self.places, "Rock": [[], []][: self.made]}}


class LongerAndLonger(Sound):
    made = 5

    def __init__(self) -> None:
        super().__init__()
        type(self).made += 1
        self.num_steps = self.made

    def act(self, actions: Mapping[str, Action]) -> Observation:
        self.rng = np.random.default_rng(self.step)
        return super().act(actions)


class Endless(Sound):
    num_steps = 10**9


class StartsAtTheEnd(Sound):
    def changes(self) -> dict[str, Any]:
        return {"terminated": True}


class StartsWithAReward(Sound):
    def changes(self) -> dict[str, Any]:
        return {"reward": 1.0}


class GoesOn(Sound):
    """Continues after the end."""

    def act(self, actions: Mapping[str, Action]) -> Observation:
        observation = super().act(actions)
        self.step %= self.num_steps
        return observation


class ReturnsNothing(Sound):
    def act(self, actions: Mapping[str, Action]) -> Observation:
        return untyped(None)  # type: ignore[no-any-return]


class Raises(Sound):
    def act(self, actions: Mapping[str, Action]) -> Observation:
        raise ZeroDivisionError("no fish left")


class ResetRaises(Sound):
    def reset(self, *, seed: int | None = None) -> Observation:
        raise ZeroDivisionError("no fish at all")


class CannotBeMade(Sound):
    def __init__(self) -> None:
        raise ZeroDivisionError("no water")


class ClosesOnce(Sound):
    is_closed = False

    def close(self) -> None:
        if self.is_closed:
            raise RuntimeError("closed already")
        self.is_closed = True


BROKEN_ENVIRONMENTS: list[tuple[Callable[[], Environment] | Environment, str]] = [
    (Changing, "obs_space changes between calls"),
    (ChangingActions, "action_space changes between calls"),
    (NoSpace, "obs_space is a dict, expected an ObsSpace"),
    (NoActionSpace, "action_space is a list, expected spaces by name"),
    (StrangeSpace, "the space of action 'swim' is a int, expected an action space"),
    (NoSpaces, "reading the spaces raised KeyError: 'lost'"),
    (
        Random,
        "one seed gives different episodes: .*: the global features: feature 'step' is",
    ),
    (Counting, r"reset in the middle of an episode does not start it over: the global features"),
    (Growing, "one seed gives different episodes: .*entity 'Rock' is first"),
    (
        LongerAndLonger,
        "one seed gives different episodes: .*terminated is first True and then False",
    ),
    (Endless, "the episode is not done within 50 steps: end it"),
    (StartsAtTheEnd, "step 0: the first observation is already done"),
    (StartsWithAReward, "step 0: the first observation has the reward 1.0, expected 0"),
    (GoesOn, "act after the end of an episode continues it"),
    (ReturnsNothing, "act returned a NoneType, expected an Observation"),
    (Raises, r"step 1: act raised ZeroDivisionError: no fish left \(.*test_env.py:\d+ in act\)"),
    (ResetRaises, "step 0: reset raised ZeroDivisionError: no fish at all"),
    (CannotBeMade, "making an environment raised ZeroDivisionError: no water"),
    (untyped(lambda: 3), "making an environment gave a int, expected an Environment"),
    (ClosesOnce, "close for the second time raised RuntimeError: closed already"),
    (ClosesOnce(), "close for the second time raised RuntimeError: closed already"),
]


@pytest.mark.parametrize(("broken", "message"), BROKEN_ENVIRONMENTS)
def test_environments_that_break_the_contract_are_found(
    broken: Callable[[], Environment] | Environment, message: str
) -> None:
    with pytest.raises(ContractError, match=message):
        check_env(broken, max_steps=50)


def test_every_violation_is_said_once() -> None:
    class Terrible(Sound):
        def changes(self) -> dict[str, Any]:
            if self.step < 2:
                return {}
            return {"reward": np.nan, "metrics": {"depth": None}, "visible": {"Crab": []}}

        def close(self) -> None:
            raise RuntimeError("no")

    with pytest.raises(ContractError) as caught:
        check_env(Terrible, episodes=2)
    reward, metric, visible, close, again = caught.value.problems
    assert reward.startswith("episode 0 (seed ")
    assert reward.endswith("step 2: the reward is nan, expected a finite number (seen 8 times)")
    assert "the metric 'depth' is None" in metric
    assert "visible names entity 'Crab'" in visible
    assert "close raised RuntimeError: no" in close
    assert "close for the second time" in again
    assert caught.value.name == "Terrible"
    assert str(caught.value).startswith("Terrible: 5 violations of the contract:\n  - episode 0")
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_a_game_has_a_check_of_its_own() -> None:
    game = Game(lambda agent, *, seed: None, entities=(), actions=(), name="snake")
    with pytest.raises(SchemaError, match=r"Game\(snake\) is a game.*use check_game"):
        check_env(untyped(game))


def test_a_factory_is_named() -> None:
    def make_fish() -> Environment:
        raise KeyError("no")

    with pytest.raises(ContractError, match="make_fish: 1 violation of the contract"):
        check_env(make_fish)


def test_differences_are_told() -> None:
    one: Snapshot = {"the reward": (np.array(1.0), ()), "entity 'Fish'": (np.zeros((2, 1)), "x")}
    assert difference(one, dict(one)) is None
    assert difference(one, {**one, "the reward": (np.array(np.nan), ())}) == (
        "the reward is first 1. and then nan"
    )
    assert difference(one, {"the reward": (np.array(1.0), ())}) == (
        "entity 'Fish' is missing the second time"
    )
    assert difference({}, one) == "the reward appears the second time"


@contextmanager
def short_patience(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Shortens the timeouts for endless games."""
    monkeypatch.setattr("entity_env.check.violations._GRACE_S", 0.01)
    yield


def test_a_thread_left_behind_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    stop = threading.Event()

    class Threaded(Sound):
        def __init__(self) -> None:
            super().__init__()
            threading.Thread(target=stop.wait, name="fish feeder", daemon=True).start()

    with short_patience(monkeypatch), pytest.raises(ContractError, match="thread 'fish feeder'"):
        check_env(Threaded)
    stop.set()


def test_a_thread_that_ends_in_time_is_not() -> None:
    class Threaded(Sound):
        def __init__(self) -> None:
            super().__init__()
            self.stop = threading.Event()
            threading.Thread(target=self.stop.wait).start()

        def close(self) -> None:
            self.stop.set()

    check_env(Threaded)


class FakeProcess:
    """Replaces a child process, which would take a second to start."""

    name = "tank"

    def __init__(self, *, ends: bool) -> None:
        self.ends = ends

    def join(self, timeout: float) -> None: ...

    def is_alive(self) -> bool:
        return not self.ends


def test_a_process_left_behind_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    children: list[FakeProcess] = []

    class Forking(Sound):
        def __init__(self) -> None:
            super().__init__()
            children.append(FakeProcess(ends=len(children) > 0))

    monkeypatch.setattr(multiprocessing, "active_children", lambda: list(children))
    with pytest.raises(ContractError) as caught:
        check_env(Forking)
    assert caught.value.problems == ("after close: the process 'tank' is left behind: join it",)
