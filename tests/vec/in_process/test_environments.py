"""EnvironmentBatch: environments stepped in this process equal a plain loop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.testing import assert_array_equal

from entity_env import (
    Action,
    ActionSpace,
    CategoricalAction,
    CategoricalActionMask,
    CategoricalActionSpace,
    ContinuousAction,
    ContinuousActionSpace,
    Entity,
    Environment,
    GlobalCategoricalAction,
    Observation,
    ObsSpace,
    SchemaError,
    SelectEntityAction,
    SelectEntityActionMask,
    SelectEntityActionSpace,
    VecActions,
    WorkerError,
    questions,
)
from entity_env.core.seeding import EpisodeSeeds
from entity_env.vec import Autoreset, VecEnv
from tests.batching.test_observation_batcher import forms_of
from tests.helpers.executors import Choices, Row, Spaces, choose, plain_batch, plain_row
from tests.helpers.strategies import FEW, action_spaces, obs_spaces, observations, untyped

NUM_ENVS = 3


@dataclass
class Script:
    """Observations of an environment: episodes, each ending with a done observation."""

    spaces: Spaces
    episodes: list[list[Observation]]


class Scripted(Environment):
    """Repeats its script forever, and records its actions."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._number = -1
        self._left: Iterator[Observation] = iter(())
        self.told: list[Mapping[str, Action]] = []

    def obs_space(self) -> ObsSpace:
        return self._script.spaces[0]

    def action_space(self) -> Mapping[str, ActionSpace]:
        return self._script.spaces[1]

    def reset(self, *, seed: int | None = None) -> Observation:
        self._number += 1
        self._left = iter(self._script.episodes[self._number % len(self._script.episodes)])
        return next(self._left)

    def act(self, actions: Mapping[str, Action]) -> Observation:
        self.told.append(actions)
        return next(self._left)


@dataclass
class Plain:
    """The slow reference: reads the questions of each observation when they are answered."""

    envs: list[Scripted]
    spaces: Spaces
    autoreset: Autoreset
    shown: list[Observation] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    final: list[Row] = field(default_factory=list)

    def reset(self) -> None:
        self.shown = [env.reset() for env in self.envs]
        self.rows = [plain_row(one, self.spaces, reward=0.0) for one in self.shown]

    def act(self, choices: Choices) -> None:
        left = {name: list(values) for name, values in choices.items()}
        answers = [self._answer(one, left) for one in self.shown]
        self.final = []
        for i, env in enumerate(self.envs):
            if self._is_over(self.shown[i]):
                self.shown[i] = env.reset()
                self.rows[i] = plain_row(self.shown[i], self.spaces, reward=0.0)
                continue
            shown = env.act(answers[i])
            last = plain_row(shown, self.spaces, ask=not shown.done)
            if shown.done:
                self.final.append(plain_row(shown, self.spaces, ask=shown.truncated))
            if shown.done and self.autoreset == "same_step":
                shown = env.reset()
                last = replace(
                    plain_row(shown, self.spaces, reward=last.reward),
                    terminated=last.terminated,
                    truncated=last.truncated,
                )
            self.shown[i], self.rows[i] = shown, last

    def _is_over(self, shown: Observation) -> bool:
        return shown.done and self.autoreset != "same_step"

    def _answer(self, shown: Observation, left: dict[str, list[Any]]) -> dict[str, Action]:
        answer = {}
        for question in questions(shown, *self.spaces) if not self._is_over(shown) else ():
            count = len(question.actors)
            answer[question.name] = question.action(left[question.name][:count])
            del left[question.name][:count]
        return answer


def plain_action(action: Action) -> tuple[Any, ...]:
    """An action in plain lists, with the dtype of its array."""
    match action:
        case CategoricalAction():
            values = action.indices
            return list(action.actors), values.tolist(), values.dtype, action.labels, action.probs
        case GlobalCategoricalAction():
            return type(action.index), action.index, action.label, action.probs
        case SelectEntityAction():
            return list(action.actors), list(action.actees), action.probs
        case ContinuousAction():
            return list(action.actors), action.values.tolist(), action.values.dtype


def plain_told(env: Scripted) -> list[list[tuple[Any, ...]]]:
    return [[(n, type(a), *plain_action(a)) for n, a in told.items()] for told in env.told]


@st.composite
def scripts(draw: st.DrawFn) -> list[Script]:
    """One script per environment, all with the same spaces."""
    spaces = draw(obs_spaces()), draw(action_spaces())
    shown = observations(*spaces).flatmap(lambda one: forms_of(one, spaces[0]))
    made = []
    for _ in range(NUM_ENVS):
        episodes = draw(st.lists(st.lists(shown, min_size=2, max_size=3), min_size=1, max_size=2))
        for episode in episodes:
            episode[-1].terminated = draw(st.booleans())
            episode[-1].truncated = not episode[-1].terminated
        made.append(Script(spaces, episodes))
    return made


@pytest.mark.slow
@pytest.mark.parametrize("autoreset", ["same_step", "next_step"])
@settings(FEW)
@given(scripts(), st.integers(0, 99))
def test_environments_show_and_are_told_what_a_plain_loop_says(
    autoreset: Autoreset, written: list[Script], seed: int
) -> None:
    spaces = written[0].spaces
    left = [Scripted(script) for script in written]
    made = list(left)
    plain = Plain([Scripted(script) for script in written], spaces, autoreset)
    rng = np.random.default_rng(seed)
    with VecEnv(lambda: left.pop(0), NUM_ENVS, autoreset=autoreset) as vec:
        batch = plain_batch(vec.reset(), spaces)
        plain.reset()
        for _ in range(5):
            assert batch.rows == plain.rows
            choices = choose(batch, spaces, rng)
            batch = plain_batch(vec.act(choices), spaces)
            plain.act(choices)
            assert [row for _, _, row in batch.final] == plain.final
        for mine, theirs in zip(made, plain.envs, strict=True):
            assert plain_told(mine) == plain_told(theirs)


# ---------------------------------------------------------------------------- one kind of game

SPACES: tuple[ObsSpace, dict[str, ActionSpace]] = (
    ObsSpace([], {"A": Entity(["x"])}),
    {
        "move": CategoricalActionSpace(["up", "down"]),
        "turn": ContinuousActionSpace([0], [1]),
    },
)


def moves(*chosen: int) -> VecActions:
    """Actions for the walkers; no actor turns."""
    return {"move": np.array(chosen)}


class Walker(Environment):
    """Two walkers, identified by name, in a reused list and array."""

    def __init__(self) -> None:
        self.names: list[Any] = ["a", "b"]
        self.places = np.zeros((2, 1), dtype=np.float32)
        self.told: list[CategoricalAction] = []
        self.num_steps = 0

    def obs_space(self) -> ObsSpace:
        return SPACES[0]

    def action_space(self) -> Mapping[str, ActionSpace]:
        return SPACES[1]

    def reset(self, *, seed: int | None = None) -> Observation:
        return self.observe()

    def act(self, actions: Mapping[str, Action]) -> Observation:
        move = actions["move"]
        assert isinstance(move, CategoricalAction)
        self.told.append(move)
        self.num_steps += 1
        self.places += 1
        return self.observe()

    def observe(self, **changes: Any) -> Observation:  # noqa: ANN401
        given = {
            "reward": 0.0,
            "features": {"A": self.places},
            "ids": {"A": self.names},
            "actions": {"move": CategoricalActionMask(actor_types=["A"])},
        }
        return Observation(**{**untyped(given), **changes})


def test_a_step_shows_copies_of_what_an_environment_uses_again() -> None:
    walker = Walker()
    with VecEnv(lambda: walker, 1) as vec:
        vec.reset()
        batch = vec.act(moves(1, 0))
        walker.places += 7
        assert batch.features["A"].values.tolist() == [[1], [1]]


def test_what_an_environment_does_to_its_ids_leaves_its_actions_alone() -> None:
    walker = Walker()
    with VecEnv(lambda: walker, 1) as vec:
        vec.reset()
        walker.names.reverse()
        vec.act(moves(1, 0))
        assert walker.told[0].actors == ["a", "b"]


def test_an_action_stays_what_it_was_after_the_next_step() -> None:
    walkers = [Walker(), Walker()]
    left = list(walkers)
    with VecEnv(lambda: left.pop(0), 2) as vec:
        vec.reset()
        for chosen in ([1, 0, 0, 0], [0, 1, 1, 1]):
            vec.act(moves(*chosen))
    assert_array_equal([move.indices for move in walkers[0].told], [[1, 0], [0, 1]])
    assert_array_equal([move.indices for move in walkers[1].told], [[0, 0], [1, 1]])


class FailsOnce(Walker):
    """Raises in its second step, but only once."""

    def act(self, actions: Mapping[str, Action]) -> Observation:
        shown = super().act(actions)
        if self.num_steps == 2:
            raise RuntimeError("stumbled")
        return shown


@pytest.mark.parametrize("failing", range(3))
def test_when_one_fails_the_others_are_told_what_is_theirs(failing: int) -> None:
    walkers = [FailsOnce() if i == failing else Walker() for i in range(3)]
    left = list(walkers)
    with VecEnv(lambda: left.pop(0), 3, on_error="restart") as vec:
        vec.reset()
        for step in range(3):
            batch = vec.act(moves(step == 0, 0, step == 1, 0, step == 2, 1))
            assert batch.truncated.tolist() == [step == 1 and i == failing for i in range(3)]
    for i, walker in enumerate(walkers):
        told = [[int(step == i), int(i == 2)] for step in range(3)]
        assert_array_equal([move.indices for move in walker.told], told)


class Wrong(Walker):
    """Its observations change from the first step on."""

    def __init__(self, changes: dict[str, Any]) -> None:
        super().__init__()
        self._changes = changes

    def act(self, actions: Mapping[str, Action]) -> Observation:
        super().act(actions)
        return self.observe(**self._changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ids": {"A": ["a"]}}, "'A': 2 rows of features but 1 ids"),
        ({"ids": {"A": ["a"]}, "actions": {}}, "'A': 2 rows of features but 1 ids"),
        ({"features": {"B": [[1]]}}, "entity 'B' is not in the observation space"),
        ({"actions": {"move": CategoricalActionMask(actor_types=["B"])}}, "actor type 'B' is not"),
        ({"actions": {"turn": CategoricalActionMask()}}, "does not take a Categorical"),
        ({"actions": {"fly": CategoricalActionMask()}}, "'fly' is not in the action space"),
    ],
)
@pytest.mark.parametrize("wrong", range(2))
def test_what_does_not_fit_is_named_with_its_environment(
    wrong: int, changes: dict[str, Any], message: str
) -> None:
    left: list[Environment] = [Wrong(changes) if i == wrong else Walker() for i in range(2)]
    with VecEnv(lambda: left.pop(0), 2) as vec:
        vec.reset()
        with pytest.raises(SchemaError, match=f"env {wrong}: .*{message}"):
            vec.act(moves(0, 0, 0, 0))


class Aimless(Environment):
    """Asks its two units to select among zero targets, after a step."""

    def __init__(self, mask: Sequence[Sequence[bool]] | None) -> None:
        self._mask = mask

    def obs_space(self) -> ObsSpace:
        return ObsSpace([], {"Unit": Entity(["x"]), "Target": Entity(["x"])})

    def action_space(self) -> Mapping[str, ActionSpace]:
        return {"aim": SelectEntityActionSpace()}

    def reset(self, *, seed: int | None = None) -> Observation:
        return self._observe(1, None)

    def act(self, actions: Mapping[str, Action]) -> Observation:
        return self._observe(0 if self._mask is None else 1, self._mask)

    def _observe(self, num_targets: int, mask: Sequence[Sequence[bool]] | None) -> Observation:
        aim = SelectEntityActionMask(actor_types=["Unit"], actee_types=["Target"], mask=mask)
        features = {"Unit": [[0.0], [1.0]], "Target": [[2.0]] * num_targets}
        return Observation(reward=0.0, features=features, actions={"aim": aim})


@pytest.mark.parametrize("mask", [None, [[True], [False]]])
@pytest.mark.parametrize("num_workers", [0, 1])
def test_an_environment_that_asks_an_actor_without_a_target_is_named(
    num_workers: int, mask: Sequence[Sequence[bool]] | None
) -> None:
    with VecEnv(partial(Aimless, mask), 2, num_workers, seed=3) as vec:
        vec.reset()
        place = rf"\(seed {EpisodeSeeds(3, 0)[0]}, episode 0, step 1\)"
        with pytest.raises(SchemaError, match=rf"env 0: .*'aim'.*no legal choice.*{place}"):
            vec.act({"aim": np.zeros(4, np.int64)})


@pytest.mark.parametrize("reward", [None, "x", 1j, np.ones(1), 10**400])
@pytest.mark.parametrize("is_last", [False, True])
def test_an_odd_reward_is_named(reward: Any, is_last: bool) -> None:  # noqa: ANN401
    class Odd(Walker):
        def act(self, actions: Mapping[str, Action]) -> Observation:
            super().act(actions)
            return self.observe(reward=reward, terminated=is_last)

    for autoreset in get_args(Autoreset):
        with VecEnv(Odd, 2, seed=3, autoreset=autoreset) as vec:
            vec.reset()
            with pytest.raises(SchemaError, match=r"reward,? must be a number, got .*") as caught:
                vec.act(moves(0, 0, 0, 0))
            assert f"seed {EpisodeSeeds(3, 0)[0]}, episode 0, step " in str(caught.value)
            assert "env 0" in str(caught.value)


def test_an_environment_that_returns_nothing_is_named() -> None:
    class Mute(Walker):
        def act(self, actions: Mapping[str, Action]) -> Observation:
            nothing: Observation = untyped(None)
            return nothing

    with VecEnv(Mute, 2) as vec:
        vec.reset()
        with pytest.raises(WorkerError, match="'NoneType' object has no attribute") as caught:
            vec.act(moves(0, 0, 0, 0))
    assert caught.value.env_id == 0


class Ends(Walker):
    """Episodes of one step; the following observations are wrong."""

    def __init__(self, wrong: str) -> None:
        super().__init__()
        self._wrong = wrong

    def reset(self, *, seed: int | None = None) -> Observation:
        return self.observe(**self._odd("first") if self.num_steps else {})

    def act(self, actions: Mapping[str, Action]) -> Observation:
        super().act(actions)
        if self._wrong == "raises":
            raise RuntimeError("stumbled")
        return self.observe(terminated=True, **self._odd("last"))

    def _odd(self, which: str) -> dict[str, Any]:
        return {"features": {"A": [[which]] * 2}} if which == self._wrong else {}


class OddLength(Ends):
    """`Ends` with an error that is detected immediately, not when numbers are packed."""

    def _odd(self, which: str) -> dict[str, Any]:
        return {"features": {"A": [[1, 2]], which: []}} if which == self._wrong else {}


@pytest.mark.parametrize(
    ("wrong", "first"),
    [
        (["", "last", ""], 1),
        (["last", "first", ""], 0),
        (["first", "last", ""], 0),
        (["", "last", "raises"], 1),
        (["raises", "last", "first"], 0),
        (["", "last", "last"], 1),
        (["", "first", "raises"], 1),
    ],
)
def test_the_first_that_is_wrong_is_told_of_with_its_place(wrong: list[str], first: int) -> None:
    left: list[Environment] = [OddLength(each) for each in wrong]
    with VecEnv(lambda: left.pop(0), 3) as vec:
        vec.reset(seed=7)
        with pytest.raises((SchemaError, WorkerError)) as caught:
            vec.act(moves(0, 0, 0, 0, 0, 0))
        if wrong[first] == "raises":
            assert isinstance(caught.value, WorkerError)
            assert (caught.value.env_id, caught.value.episode) == (first, 0)
            return
        assert f"env {first}: entity '{wrong[first]}' is not in" in str(caught.value)
        is_last = wrong[first] == "last"
        episode, step = (0, 1) if is_last else (1, 0)
        seed = EpisodeSeeds(7, first)[episode]
        assert str(caught.value).endswith(f"(seed {seed}, episode {episode}, step {step})")


def test_after_a_last_observation_that_does_not_fit_everything_can_begin_anew() -> None:
    walkers = [OddLength(each) for each in ("", "last", "")]
    left: list[Environment] = list(walkers)
    with VecEnv(lambda: left.pop(0), 3) as vec:
        vec.reset()
        with pytest.raises(SchemaError, match="env 1: entity 'last'"):
            vec.act(moves(0, 0, 0, 0, 0, 0))
        walkers[1]._wrong = ""
        vec.reset(seed=3)
        batch = vec.act(moves(0, 0, 0, 0, 0, 0))
        assert [one.env_id for one in batch.episodes] == [0, 1, 2]
        assert [one.seed for one in batch.episodes] == [EpisodeSeeds(3, i)[0] for i in range(3)]
        assert batch.final is not None
        assert batch.final.features["A"].lengths.tolist() == [2, 2, 2]


@pytest.mark.parametrize("wrong", [["last", ""], ["", "last"], ["last", "raises"]])
def test_what_does_not_fit_is_no_reason_to_begin_anew(wrong: list[str]) -> None:
    left: list[Environment] = [OddLength(each) for each in wrong]
    with VecEnv(lambda: left.pop(0), 2, on_error="restart") as vec:
        vec.reset()
        with pytest.raises(SchemaError, match=f"env {wrong.index('last')}: entity 'last'"):
            vec.act(moves(0, 0, 0, 0))


@pytest.mark.parametrize("which", ["first", "last"])
def test_numbers_that_are_none_are_named_with_their_environment(which: str) -> None:
    left: list[Environment] = [Ends(each) for each in ("", which, "")]
    with VecEnv(lambda: left.pop(0), 3) as vec:
        vec.reset()
        with pytest.raises(SchemaError, match="env 1: entity A: feature 'x' of row 0 must be a"):
            vec.act(moves(0, 0, 0, 0, 0, 0))


@pytest.mark.parametrize("failing", [None, 0, 127, 128, 200])
def test_more_than_are_read_at_once(failing: int | None) -> None:
    num_envs = 260
    walkers = [FailsOnce() if i == failing else Walker() for i in range(num_envs)]
    left = list(walkers)
    chosen = np.arange(2 * num_envs) % 3 % 2
    with VecEnv(lambda: left.pop(0), num_envs, on_error="restart") as vec:
        vec.reset()
        for step in range(3):
            batch = vec.act(moves(*chosen))
            assert_array_equal(batch.env_id, np.arange(num_envs))
            assert np.flatnonzero(batch.truncated).tolist() == [failing] * (
                step == 1 and failing is not None
            )
            places = np.full((2 * num_envs, 1), step + 1)
            assert_array_equal(batch.features["A"].values, places)
            actors = batch.action_masks["move"].actors
            assert_array_equal(actors.lengths, np.full(num_envs, 2))
            assert_array_equal(actors.values, np.tile([0, 1], num_envs))
    for i, walker in enumerate(walkers):
        told = chosen[2 * i : 2 * i + 2]
        assert_array_equal([move.indices for move in walker.told], [told] * 3)
