"""Mistakes in what environments of other libraries return: every importer names them."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import partial
from typing import Any, Final

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import batch_space
from pettingzoo.utils.conversions import parallel_to_aec

from entity_env import SchemaError, UsageError, WorkerError
from entity_env.agents import RandomAgent
from entity_env.interop.gymnasium import GymnasiumVecEnv, from_gymnasium
from entity_env.interop.gymnasium.game import ImportedGame
from entity_env.interop.pettingzoo import from_pettingzoo
from entity_env.vec import VecEnv
from tests.interop.odd_results import (
    ZEROS,
    AloneReturns,
    FailsAlone,
    FailsAtOnce,
    FailsInTurn,
    Returns,
)


def play_game(**given: Any) -> float:  # noqa: ANN401
    [episode] = from_gymnasium(Returns, **given).run(RandomAgent())
    return episode.reward


def step_copies(**given: Any) -> float:  # noqa: ANN401
    with GymnasiumVecEnv(SyncVectorEnv([lambda: Returns(**given)] * 2)) as vec:
        vec.reset(seed=1)
        return vec.act({"Action": np.zeros(2, np.int64)}).episodes[1].reward


def play_parallel(**given: Any) -> float:  # noqa: ANN401
    [episode] = from_pettingzoo(AloneReturns, **given).run(RandomAgent())
    return episode.reward


def play_in_turn(**given: Any) -> float:  # noqa: ANN401
    make = lambda: parallel_to_aec(AloneReturns(**given))  # noqa: E731
    [episode] = from_pettingzoo(make).run(RandomAgent())
    return episode.reward


GYMNASIUM: Final = [play_game, step_copies]
EVERY: Final = [*GYMNASIUM, play_parallel]
Play = Callable[..., float]


@pytest.mark.parametrize("play", [*EVERY, play_in_turn])
@pytest.mark.parametrize(
    "reward", [np.array([1.5]), np.float32(1.5), np.array(1.5), 1.5, [1.5], Fraction(3, 2)]
)
def test_one_number_is_a_reward(play: Play, reward: Any) -> None:  # noqa: ANN401
    if play is play_in_turn and isinstance(reward, Fraction | list):
        pytest.skip("PettingZoo adds rewards itself")
    assert play(reward=reward) == 1.5


@pytest.mark.parametrize("play", EVERY)
@pytest.mark.parametrize(
    "reward",
    [
        np.ones(2),
        np.ones((1, 2)),
        [1.0, 2.0],
        [],
        {"a": 1.0},
        None,
        "1.5",
        np.array("1.5"),
        1j,
        np.ones(0),
    ],
)
def test_other_rewards_are_named(play: Play, reward: object) -> None:
    words = r"the reward.* of .*env\.step must be one number, got .*LinearReward of mo_gymnasium"
    with pytest.raises(SchemaError, match=words):
        play(reward=reward)


@pytest.mark.parametrize("play", EVERY)
@pytest.mark.parametrize("flag", [np.bool_(True), np.array(True), np.array([True])])
def test_numpy_bools_are_flags(play: Play, flag: object) -> None:
    assert play(terminated=flag, truncated=flag) == 1.0


@pytest.mark.parametrize("play", EVERY)
@pytest.mark.parametrize("name", ["terminated", "truncated"])
@pytest.mark.parametrize("flag", [1, 0, None, "no", [], np.array([True, False]), np.int64(1)])
def test_other_flags_are_named(play: Play, name: str, flag: object) -> None:
    with pytest.raises(SchemaError, match=rf"{name}.* of .*env\.step must be True or False, got"):
        play(**{name: flag})


@pytest.mark.parametrize("play", EVERY)
@pytest.mark.parametrize("info", [None, [], "text", 5])
def test_infos_that_are_no_dict_are_named(play: Play, info: object) -> None:
    with pytest.raises(SchemaError, match=r"the info.* of .*env\.\w+ must be a dict, got"):
        play(info=info)


@pytest.mark.parametrize("play", GYMNASIUM)
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"reset": ZEROS}, r"env\.reset must return \(observation, info\), got array"),
        ({"reset": (ZEROS,)}, r"env\.reset must return \(observation, info\), got 1 results"),
        ({"reset": (ZEROS, 0.0, False, {})}, r"env\.reset must return .*got 4 results"),
        (
            {"step": (ZEROS, 0.0, True, {})},
            r"terminated, truncated, info\), got 4 results: .*shimmy",
        ),
        ({"step": None}, r"env\.step must return .*got None"),
    ],
)
def test_the_old_api_is_named(play: Play, given: dict[str, Any], words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        play(**given)


def test_a_space_that_the_environment_replaces_stays_as_it_was() -> None:
    class Grows(Returns):
        def step(self, action: Any) -> Any:  # noqa: ANN401
            self.observation_space = spaces.Box(-1, 1, (3,))
            return np.zeros(3, np.float32), 1.0, True, False, {}

    words = re.escape("needs the shape (2,): got (3,)")
    with pytest.raises(SchemaError, match=words):
        from_gymnasium(Grows).run(RandomAgent())
    with GymnasiumVecEnv(SyncVectorEnv([Grows])) as vec:
        vec.reset(seed=1)
        with pytest.raises(SchemaError, match=words):
            vec.act({"Action": np.zeros(1, np.int64)})


@pytest.mark.parametrize("play", GYMNASIUM)
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.int64, np.uint8])
@pytest.mark.parametrize("value", [[1, 0], (1.0, 0.0), np.array([1, 0]), np.array([True, False])])
def test_equal_numbers_of_every_type_are_an_observation(
    play: Play, dtype: type, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Returns, "observation_space", spaces.Box(0, 1, (2,), dtype))
    assert play(reset=(value, {}), step=(value, 1.5, True, False, {})) == 1.5


@pytest.mark.parametrize("play", GYMNASIUM)
def test_keys_of_infos_may_look_like_the_flags_of_gymnasium(play: Play) -> None:
    assert play(info={"x": None, "_x": 1.5, "_y": 2.5, 3: 4.5}) == 1.0


def test_a_reset_without_arguments_is_named() -> None:
    class Old(Returns):
        def reset(self) -> Any:  # type: ignore[override]  # noqa: ANN401
            return ZEROS

    words = r"Old.*: env\.reset must take the keyword arguments seed and options: .*shimmy"
    with pytest.raises(SchemaError, match=words):
        from_gymnasium(Old).run(RandomAgent())
    with GymnasiumVecEnv(SyncVectorEnv([Old])) as vec, pytest.raises(SchemaError, match=words):
        vec.reset(seed=1)


def test_an_error_of_the_environment_is_not_changed() -> None:
    class Wrong(Returns):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:  # noqa: ANN401
            raise TypeError("mine")

    with pytest.raises(TypeError, match="mine"):
        from_gymnasium(Wrong).run(RandomAgent())


class Fails(Returns):
    """Its step raises an error."""

    def step(self, action: Any) -> Any:  # noqa: ANN401
        raise self.given["error"]


class PlainFails(VectorEnv[Any, Any, Any]):
    """A vector environment without environments of its own."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012 - as in Gymnasium
    observation_space, action_space = (
        batch_space(space, 2) for space in (Fails.observation_space, Fails.action_space)
    )
    single_observation_space, single_action_space = Fails.observation_space, Fails.action_space
    num_envs = 2

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def reset(self, **_: object) -> Any:  # noqa: ANN401
        return np.zeros((2, 2), np.float32), {}

    def step(self, actions: Any) -> Any:  # noqa: ANN401
        raise self.error


def fails(num: int, error: BaseException) -> Any:  # noqa: ANN401
    return SyncVectorEnv([partial(Fails, error=error)] * num)


def error_of(make: Callable[..., Any], num_workers: int = 0) -> BaseException:
    with GymnasiumVecEnv(make, 4, num_workers) as vec:
        vec.reset(seed=1)
        with pytest.raises(Exception, match=r"mine|3") as info:
            vec.act({"Action": np.zeros(4, np.int64)})
    return info.value


def test_errors_of_environments_that_step_together_name_the_environment() -> None:
    mine = KeyError("mine")
    raised = error_of(partial(fails, error=mine))
    assert isinstance(raised, WorkerError)
    assert raised.__cause__ is mine
    assert str(raised).endswith("KeyError: 'mine'\nraised by Fails (env 0): env.step")
    left = error_of(partial(fails, error=SystemExit(3)))
    assert isinstance(left, WorkerError)
    assert "Fails (env 0): env.step called sys.exit(3)" in str(left)


class Leaves(Returns):
    """Ends the program where the test says so."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.where = where
        self.leave("making")

    def leave(self, where: str) -> None:
        if where == self.where:
            sys.exit(0)

    @property
    def action_space(self) -> Any:  # type: ignore[override]  # noqa: ANN401
        self.leave("space")
        return Returns.action_space

    def close(self) -> None:
        self.leave("close")


class LeavesLater(Leaves):
    def close(self) -> None:
        if hasattr(self, "action"):
            super().close()

    def step(self, action: Any) -> Any:  # noqa: ANN401
        self.action = action
        return super().step(action)


@pytest.mark.parametrize("where", ["making", "space", "close"])
def test_an_environment_that_exits_does_not_end_the_program(where: str) -> None:
    words = rf"making the environment called sys\.exit\(0\), .*: leave it out in {__file__}:\d+"
    with pytest.raises(WorkerError, match=words):
        from_gymnasium(Leaves, where=where)


def test_an_environment_that_exits_at_its_close_does_not_end_the_program() -> None:
    words = r"env\.close called sys\.exit\(0\), which would end this program"
    game = from_gymnasium(LeavesLater, where="close")
    with pytest.raises(WorkerError, match=words):
        game.run(RandomAgent())
    vec = GymnasiumVecEnv(SyncVectorEnv([partial(LeavesLater, "close")]))
    vec.reset(seed=1)
    vec.act({"Action": np.zeros(1, np.int64)})
    with pytest.raises(WorkerError, match=words):
        vec.close()
    vec._finalizer.detach()


@pytest.mark.slow  # starts workers
@pytest.mark.parametrize("make", [fails, lambda num, error: PlainFails(error)])
@pytest.mark.parametrize("error", [KeyError("mine"), SystemExit("mine")])
def test_errors_of_environments_that_step_together_arrive_from_workers(
    make: Callable[..., Any], error: BaseException
) -> None:
    found = error_of(partial(make, error=error), 2)
    assert isinstance(found, WorkerError)
    assert (found.worker, found.env_id) == (0, None)
    assert "mine" in str(found)


def test_sub_environments_are_named_and_stay_the_objects_of_the_caller() -> None:
    envs = SyncVectorEnv([Returns, lambda: Returns(reward="1.5")])
    mine = list(envs.envs)
    with GymnasiumVecEnv(envs) as vec:
        vec.reset(seed=1)
        with pytest.raises(SchemaError, match=r"the reward of Returns \(env 1\): env\.step"):
            vec.act({"Action": np.zeros(2, np.int64)})
        assert all(a is b for a, b in zip(mine, envs.envs, strict=True))


@pytest.mark.slow
def test_rewards_of_one_number_arrive_from_processes() -> None:
    envs: Any = AsyncVectorEnv([lambda: Returns(reward=np.array([1.5]))] * 2)
    with GymnasiumVecEnv(envs) as vec:
        vec.reset(seed=1)
        obs = vec.act({"Action": np.zeros(2, np.int64)})
        assert [episode.reward for episode in obs.episodes] == [1.5, 1.5]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (7, "the observation 'mode' is 7.*, but in its space it is an integer from 0 to 3"),
        (-1, "'mode' is -1"),
        (1.5, "'mode' (is|holds) 1.5"),
        (np.array([1, 2]), r"'mode' needs the shape \(\): got \(2,\)"),
        ("a", "'mode' must hold numbers"),
        (2**70, "'mode' must hold numbers"),
    ],
)
@pytest.mark.parametrize("play", GYMNASIUM)
def test_values_outside_of_their_space_are_named(
    play: Play, value: object, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = spaces.Dict({"mode": spaces.Discrete(4), "where": spaces.Box(-1, 1, (2, 3))})
    monkeypatch.setattr(Returns, "observation_space", space)
    obs = {"mode": value, "where": np.zeros((2, 3), np.float32)}
    with pytest.raises(SchemaError, match=words):
        play(reset=(obs, {}))
    texts = {"mode": 1, "where": np.full((2, 3), "a")}
    with pytest.raises(SchemaError, match="'where' must hold numbers"):
        play(reset=(texts, {}))
    missing = {"mode": 1}
    with pytest.raises(SchemaError, match="the observation 'where' is missing"):
        play(reset=(missing, {}))
    turned = {"mode": 1, "where": np.zeros((3, 2), np.float32)}
    with pytest.raises(SchemaError, match=re.escape("'where' needs the shape (2, 3): got (3, 2)")):
        play(reset=(turned, {}))


# ------------------------------------------------------------------ failures of the environment


def fail() -> None:
    raise KeyError("mine")


def leave() -> None:
    sys.exit(3)


METHODS: Final = {
    "parallel": ["observation_space", "action_space", "reset", "step", "render", "close"],
    "in turn": [
        "observation_space",
        "action_space",
        "agents",
        "agent_selection",
        "reset",
        "observe",
        "step",
        "render",
        "close",
    ],
    "alone": ["reset", "step", "action_masks", "render", "close"],
}
FAILING: Final[Mapping[str, Callable[..., Any]]] = {
    "parallel": FailsAtOnce,
    "in turn": FailsInTurn,
    "alone": FailsAlone,
}
IMPORTER: Final[Mapping[str, Callable[..., ImportedGame]]] = {
    "parallel": from_pettingzoo,
    "in turn": from_pettingzoo,
    "alone": from_gymnasium,
}
each_method = pytest.mark.parametrize(
    ("kind", "method"), [(kind, method) for kind, all_ in METHODS.items() for method in all_]
)


def call_of(kind: str, method: str) -> str:
    """The call that an error names."""
    if kind == "alone":
        return rf"FailsAlone: env\.{method}"
    own = method.endswith("_space") or (kind == "in turn" and method in ("observe", "step"))
    called = "last" if method == "observe" else method
    return rf"fails: env\.{called}" + (" of 'a'" if own else "")


def play_once(kind: str, method: str, fault: Callable[[], None]) -> None:
    game = IMPORTER[kind](partial(FAILING[kind], method, fault))
    agents = [RandomAgent() for _ in range(game.num_agents)]
    rules: Any = game.play
    game.run(*agents, seed=5, watch=(lambda _: rules.text()) if method == "render" else None)


@each_method
def test_an_error_of_any_method_names_environment_method_and_agent(kind: str, method: str) -> None:
    with pytest.raises(KeyError, match="mine") as info:
        play_once(kind, method, fail)
    first, *others = info.value.__notes__
    assert re.fullmatch(f"raised by {call_of(kind, method)}", first)
    assert method.endswith("_space") or any("seed" in note for note in others)


@each_method
def test_an_exit_of_any_method_is_an_error_with_its_episode(kind: str, method: str) -> None:
    words = rf"{call_of(kind, method)} called sys\.exit\(3\), .*: leave it out in {__file__}:\d+"
    with pytest.raises(WorkerError, match=words) as info:
        play_once(kind, method, leave)
    notes = getattr(info.value, "__notes__", [])
    assert method.endswith("_space") or any("seed" in note for note in notes)


def step_copy(kind: str, method: str) -> None:
    with VecEnv(IMPORTER[kind](partial(FAILING[kind], method, fail)), 1) as vec:
        obs = vec.reset(seed=5)
        for _ in range(3):
            obs = vec.act({"Action": np.zeros(int(obs.is_ready.sum()), np.int64)})


@each_method
def test_an_error_in_a_copy_names_environment_method_and_agent(kind: str, method: str) -> None:
    if method == "render":
        pytest.skip("copies are not drawn")
    with pytest.raises(Exception, match="mine") as info:
        step_copy(kind, method)
    text = "\n".join([str(info.value), *getattr(info.value, "__notes__", [])])
    assert re.search(f"^raised by {call_of(kind, method)}$", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("kind", "given", "words"),
    [
        ("parallel", {"agents": 5}, "fails: env.agents must be a list of names, got 5"),
        ("in turn", {"agents": "ab"}, "fails: env.agents must be a list of names, got 'ab'"),
        ("in turn", {"agents": None}, "fails: env.agents must be a list of names, got None"),
        ("in turn", {"agent_selection": "z"}, "env.agent_selection is 'z', but possible_agents"),
        ("in turn", {"agent_selection": None}, "env.agent_selection is None, but possible_agents"),
        ("parallel", {"possible_agents": 5}, "fails: env.possible_agents must be a list of names"),
        ("parallel", {"possible_agents": ["a", "a"]}, "fails: env.possible_agents repeats one"),
        ("parallel", {"observation_space": 5}, "env.observation_space of 'a' must return a space"),
        ("in turn", {"action_space": None}, "env.action_space of 'a' must return a space"),
        ("parallel", {"observe": np.zeros(3)}, "env.reset of 'a': the observation needs the shape"),
        ("in turn", {"observe": "text"}, "env.last of 'a': the observation must hold numbers"),
        ("in turn", {"observe": None}, "env.last of 'a': the observation must hold numbers"),
        ("in turn", {"info": None}, "the info of fails: env.last of 'a' must be a dict"),
        ("parallel", {"info": 5}, "the info of 'a' of fails: env.reset must be a dict, got 5"),
        ("parallel", {"info": {"action_mask": [1]}}, "env.reset of 'a': info['action_mask']: "),
        (
            "in turn",
            {"info": {"action_mask": [0, 0]}},
            "env.last of 'a': info['action_mask'] allow",
        ),
        ("in turn", {"reward": "1"}, "the reward of fails: env.last of 'a' must be one number"),
        ("in turn", {"terminated": 1}, "terminated of fails: env.last of 'a' must be True or"),
        ("parallel", {"terminated": "no"}, "terminated of 'a' of fails: env.step must be True or"),
    ],
)
def test_wrong_values_name_environment_method_and_agent(
    kind: str, given: dict[str, Any], words: str
) -> None:
    with pytest.raises((SchemaError, UsageError), match=re.escape(words)):
        from_pettingzoo(FAILING[kind], given=given).run(RandomAgent(), RandomAgent(), seed=5)
