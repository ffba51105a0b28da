"""Episodes under the caller's control: environments, games, and many at once."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any, Self, TypeAlias

import numpy as np
import pytest
from numpy.typing import NDArray

from entity_env import (
    Action,
    ActionSpace,
    ClosedError,
    Entity,
    Environment,
    Episode,
    EpisodeEnv,
    Game,
    GlobalCategoricalAction,
    GlobalCategoricalActionMask,
    GlobalCategoricalActionSpace,
    Observation,
    ObsSpace,
    ProtocolError,
    Record,
    SchemaError,
    Step,
    UsageError,
    questions,
)
from entity_env.agents import Agent, RandomAgent, TrainAgentEnv, random_action
from entity_env.core.seeding import EpisodeSeeds
from entity_env.episodes.episode_env import EpisodeOfEnvironment, EpisodeOfGame
from entity_env.games import snake
from tests.helpers.strategies import untyped
from tests.helpers.tiny_games import TINY_GAMES, ask, count, dots_game

One: TypeAlias = EpisodeEnv[Observation, Mapping[str, Action], float, bool]
STAY = {"Move": GlobalCategoricalAction(1, "STAY")}


class Walk(Environment):
    """Shows its seed, then counts to three; rewards and metrics contain the count."""

    def __init__(self) -> None:
        self.seed: int | None = None
        self.at = 0
        self.num_closed = 0

    def obs_space(self) -> ObsSpace:
        return ObsSpace(entities={"Dot": Entity(["x"])})

    def action_space(self) -> Mapping[str, ActionSpace]:
        return {"Move": GlobalCategoricalActionSpace(["LEFT", "STAY", "RIGHT"])}

    def reset(self, *, seed: int | None = None) -> Observation:
        self.seed, self.at = seed, 0
        return self._show(0.0)

    def act(self, actions: Mapping[str, Action]) -> Observation:
        if not actions:
            raise SchemaError("no action")
        self.at += 1
        return self._show(self.at)

    def close(self) -> None:
        self.num_closed += 1

    def _show(self, reward: float) -> Observation:
        return Observation(
            reward=reward,
            terminated=self.at == 3,
            features={"Dot": [[(self.seed or 0) % 1000 + self.at]]},
            actions={} if self.at == 3 else {"Move": GlobalCategoricalActionMask()},
            metrics={"at": self.at},
        )


class Seedless(Walk):
    """Like entity-gym's environments: its reset takes no seed."""

    def reset(self) -> Observation:  # type: ignore[override]
        return super().reset()


class Failing(Walk):
    """Fails on its second step."""

    def act(self, actions: Mapping[str, Action]) -> Observation:
        if self.at == 1:
            raise ZeroDivisionError
        return super().act(actions)


SOURCES: dict[str, Callable[[], One]] = {
    "environment": lambda: EpisodeEnv.of(Walk(), seed=5),
    "class": lambda: EpisodeEnv.of(Walk, seed=5),
    "game": lambda: EpisodeEnv.of(count, seed=5),
    "pair": lambda: EpisodeEnv.of(TrainAgentEnv(count), seed=5),
    "build": lambda: EpisodeOfEnvironment.build(Walk, 5),
    "build of a game": lambda: EpisodeOfGame.build(count, 5),
}
each_source = pytest.mark.parametrize("make", SOURCES.values(), ids=SOURCES)


def plain(obs: Observation) -> list[Any]:
    """The content of an observation, for comparison."""
    features = {name: np.asarray(rows).tolist() for name, rows in obs.features.items()}
    globals_ = np.asarray(obs.global_features).tolist()
    return [features, globals_, obs.reward, obs.terminated, obs.truncated, list(obs.actions)]


@each_source
def test_an_episode_is_stepped_to_its_end(make: Callable[[], One]) -> None:
    with make() as env:
        first = env.reset()
        assert not first.done
        steps = [env.step(STAY)[0] for _ in range(3)]
        assert [step.is_done() for step in steps] == [False, False, True]
        assert [step.is_terminated for step in steps] == [False, False, True]
        assert not any(step.is_truncated for step in steps)
        assert all(step.init_obs is None and step.next_obs is step.obs for step in steps)
        assert all(step.act is STAY and step.reward == step.obs.reward for step in steps)
        with pytest.raises(ProtocolError, match="ended: reset"):
            env.step(STAY)
        assert not env.reset(True).done
        env.step(STAY)


@each_source
def test_the_record_tells_of_the_episode(make: Callable[[], One]) -> None:
    with make() as env:
        env.reset()
        told = [env.step(STAY) for _ in range(3)]
    assert not any(name.startswith("episode/") for _, record in told[:2] for name in record)
    assert [dict(step.info) for step, _ in told[:2]] == [{}, {}]
    step, record = told[-1]
    (episode,) = untyped(step.info["episodes"])
    assert isinstance(episode, Episode)
    assert episode.reward == sum(step.reward for step, _ in told)
    assert (episode.length, episode.terminated, episode.number) == (3, True, 0)
    assert episode.seed == EpisodeSeeds(5)[0]
    assert record.get_scalar("episode/reward") == episode.reward
    assert record.get_scalar("episode/length") == 3
    assert record.get_scalar("episode/count") == 1


def test_metrics_are_recorded() -> None:
    with EpisodeEnv.of(Walk) as env:
        env.reset()
        assert env.step(STAY)[1] == Record({"metrics/at": 1})
        env.step(STAY)
        step, record = env.step(STAY)
    assert record.get_scalar("metrics/at") == 3
    (episode,) = untyped(step.info["episodes"])
    assert episode.metrics == {"at": 3}


@each_source
def test_step_with_reset_keeps_the_last_observation(make: Callable[[], One]) -> None:
    with make() as env, make() as other:
        env.reset()
        other.reset()
        for _ in range(3):
            for _ in range(2):
                step, record = env.step_with_reset(STAY)
                assert step.init_obs is None
                assert plain(step.obs) == plain(other.step(STAY)[0].obs)
            step, record = env.step_with_reset(STAY)
            last, last_record = other.step(STAY)
            assert step.is_done()
            assert plain(step.obs) == plain(last.obs)
            assert record == last_record
            assert step.init_obs is not None
            assert step.next_obs is step.init_obs
            assert plain(step.init_obs) == plain(other.reset(True))


@each_source
def test_reset_of_what_is_not_done_shows_it_again(make: Callable[[], One]) -> None:
    with make() as env:
        with pytest.raises(ProtocolError, match="call reset without is_done first"):
            env.reset(False)
        env.reset()
        step, _ = env.step(STAY)
        assert env.reset(False) is step.obs
        assert env.reset(untyped(np.bool_(False))) is step.obs
        with pytest.raises(SchemaError, match=r"is_done must be a bool, or None .* got 1"):
            env.reset(untyped(1))
        env.step(STAY)
        assert env.step(STAY)[0].is_done()


@each_source
def test_reset_in_the_middle_begins_the_next_episode(make: Callable[[], One]) -> None:
    with make() as env:
        env.reset()
        env.step(STAY)
        env.reset()
        for _ in range(2):
            env.step(STAY)
        step, _ = env.step(STAY)
        (episode,) = untyped(step.info["episodes"])
        assert (episode.number, episode.length, episode.seed) == (1, 3, EpisodeSeeds(5)[1])


@each_source
def test_the_order_of_calls(make: Callable[[], One]) -> None:
    env = make()
    with pytest.raises(ProtocolError, match="call reset before step"):
        env.step(STAY)
    with pytest.raises(ProtocolError, match="call reset before step"):
        env.step_with_reset(STAY)
    env.close()
    env.close()
    calls: list[Callable[[], object]] = [
        env.reset,
        lambda: env.step(STAY),
        lambda: env.reset_with_index(0),
    ]
    for call in calls:
        with pytest.raises(ClosedError, match="make a new one"):
            call()


@each_source
def test_a_refused_action_changes_nothing(make: Callable[[], One]) -> None:
    with make() as env:
        env.reset()
        with pytest.raises(SchemaError):
            env.step({})
        steps = [env.step(STAY)[0] for _ in range(3)]
        assert steps[-1].is_done()


def test_an_observation_that_cannot_be_shown_ends_the_episode() -> None:
    class Unseen(Walk):
        def _show(self, reward: float) -> Observation:
            if self.at == 2:
                raise SchemaError("a feature is missing")
            return super()._show(reward)

    with EpisodeEnv.of(Unseen) as env:
        env.reset()
        env.step(STAY)
        with pytest.raises(SchemaError, match="a feature is missing"):
            env.step(STAY)
        with pytest.raises(ProtocolError, match="call reset before step"):
            env.step(STAY)
        env.reset()
        env.step(STAY)


def test_after_a_failure_only_a_reset_helps() -> None:
    with EpisodeEnv.of(Failing) as env:
        env.reset()
        env.step(STAY)
        with pytest.raises(ZeroDivisionError):
            env.step(STAY)
        with pytest.raises(ProtocolError, match="nothing is being played"):
            env.step(STAY)
        env.reset()
        env.step(STAY)


@pytest.mark.parametrize("name", [n for n, game in TINY_GAMES.items() if game.num_agents == 1])
def test_a_start_depends_on_its_index_alone(name: str) -> None:
    game = TINY_GAMES[name]
    with EpisodeEnv.of(game, seed=3) as env, EpisodeEnv.of(game, seed=3) as other:
        starts = [plain(env.reset()) for _ in range(6)]
        assert len({str(start) for start in starts}) > 1 or name == "count"
        for ix in (4, 0, 5, 5, 2):
            assert plain(other.reset_with_index(ix)) == starts[ix]
            play_a_bit(other, game, num_steps=ix)
        assert plain(other.reset()) == starts[3]
        assert plain(other.reset()) == starts[4]


def play_a_bit(env: One, game: Game, num_steps: int) -> None:
    """Takes random steps, at most until an episode ends."""
    rng = np.random.default_rng(num_steps)
    obs = env.reset(False)
    for _ in range(num_steps):
        if obs.done:
            return
        asked = questions(obs, game.obs_space(), game.action_space())
        obs = env.step({q.name: random_action(q, rng) for q in asked})[0].obs


def test_starts_of_other_seeds_are_others() -> None:
    with EpisodeEnv.of(snake, seed=1) as env, EpisodeEnv.of(snake, seed=2) as other:
        starts = [[plain(e.reset_with_index(ix)) for ix in range(5)] for e in (env, other)]
    assert starts[0] != starts[1]


def test_starts_are_those_of_a_run() -> None:
    """Index, episode number in `Game.run`, and seed give the same start."""
    seeds = [episode.seed for episode in snake.run(RandomAgent(1), seed=9, episodes=5)]
    assert seeds == [EpisodeSeeds(9)[ix] for ix in range(5)]
    walk = Walk()
    with EpisodeEnv.of(walk, seed=9) as env:
        for ix in (3, 1):
            env.reset_with_index(ix)
            assert walk.seed == seeds[ix]
    with EpisodeEnv.of(count, seed=9) as env:
        env.reset_with_index(3)
        steps = [env.step(STAY)[0] for _ in range(3)]
    (episode,) = untyped(steps[-1].info["episodes"])
    assert (episode.seed, episode.number) == (seeds[3], 3)


def play_and_remember(agent: Agent, *, seed: int) -> None:
    """Loops over episodes; the dot shows the number of the episode."""
    number = 0
    while ask(agent, x=number) is not None:
        agent.game_over()
        number += 1


def test_a_game_that_goes_on_by_itself_does_so() -> None:
    with EpisodeEnv.of(dots_game(play_and_remember)) as env:
        shown = [plain(env.reset())[0]["Dot"]]
        for _ in range(2):
            step, _ = env.step_with_reset(STAY)
            shown.append(plain(step.next_obs)[0]["Dot"])
        assert shown == [[[0]], [[1]], [[2]]]
        assert plain(env.reset_with_index(3))[0]["Dot"] == [[0]]


@each_source
@pytest.mark.parametrize("ix", [-1, 1.0, True, None, "0"])
def test_an_index_that_is_none_is_refused(make: Callable[[], One], ix: object) -> None:
    with make() as env:
        env.reset()
        env.step(STAY)
        with pytest.raises(UsageError, match=f"an integer, 0 or more: got {ix!r}"):
            env.reset_with_index(untyped(ix))
        env.step(STAY)  # works as if nothing had been asked
        env.reset_with_index(untyped(np.int64(2)))


def test_starts_need_a_seed() -> None:
    with EpisodeEnv.of(Seedless) as env:
        with pytest.raises(ProtocolError, match=r"Seedless.reset takes no seed"):
            env.reset_with_index(0)
        env.reset()
        for _ in range(3):
            env.step_with_reset(STAY)


@pytest.mark.parametrize("seed", [-1, 1.5, True, None])
def test_a_bad_seed_is_refused(seed: object) -> None:
    for source in (Walk, count, Walk()):
        with pytest.raises(UsageError, match="a seed must be an integer"):
            EpisodeEnv.of(source, seed=untyped(seed))


def test_what_cannot_be_stepped_is_refused() -> None:
    of = untyped(EpisodeEnv.of)
    with pytest.raises(SchemaError, match=r"needs a Game, an Environment, .* got 3"):
        of(3)
    with pytest.raises(SchemaError, match="returned a int"):
        of(lambda: 3)
    with pytest.raises(UsageError, match=r"num_envs=2 needs a game, .* got one Walk object"):
        of(Walk(), num_envs=2)
    with pytest.raises(UsageError, match="num_workers=2 needs num_envs"):
        of(Walk, num_workers=2)
    with pytest.raises(UsageError, match="play_together is for 3 agents"):
        of(TINY_GAMES["together"])


def test_an_object_that_is_handed_in_is_closed() -> None:
    walk = Walk()
    EpisodeEnv.of(walk).close()
    assert walk.num_closed == 1


class Dice(EpisodeEnv[int, int, float, bool]):
    """An environment of another package: guess the next number."""

    def __init__(self, sides: int, seed: int) -> None:
        self._sides = sides
        self._seed = seed
        self._start = -1

    @classmethod
    def build(cls, config: int, seed: int) -> Self:
        return cls(config, seed)

    def reset(self, is_done: bool | None = None) -> int:
        return self.reset_with_index(self._start + 1)

    def reset_with_index(self, ix: int) -> int:
        self._start = ix
        self._rng = np.random.default_rng([self._seed, ix])
        return self._throw()

    def step(self, act: int) -> tuple[Step[int, int, float, bool], Record]:
        number = self._throw()
        step: Step[int, int, float, bool] = Step(
            act, number, float(act == number), act == number, False
        )
        return step, Record({"number": number})

    def _throw(self) -> int:
        return int(self._rng.integers(self._sides))


def test_anybody_can_write_one() -> None:
    with Dice.build(6, seed=1) as env, Dice(6, seed=1) as other:
        starts = [env.reset() for _ in range(10)]
        assert [other.reset_with_index(ix) for ix in range(10)] == starts
        env.reset_with_index(0)
        guesses = [env.step_with_reset(3)[0] for _ in range(50)]
    for step in guesses:
        assert step.is_done() == (step.obs == 3) == (step.init_obs is not None)
        assert step.next_obs == (step.obs if step.init_obs is None else step.init_obs)
    assert any(step.is_done() for step in guesses)


def test_a_step_is_done_when_it_is_cut_as_well() -> None:
    for terminated in (False, True):
        for truncated in (False, True):
            step = Step(0, 0, 0.0, terminated, truncated)
            assert step.is_done() is (terminated or truncated)
    many: Step[int, int, NDArray[np.float32], NDArray[np.bool_]] = Step(
        0, 0, np.zeros(3, np.float32), np.array([True, False, False]), np.array([True, True, False])
    )
    assert many.is_done().tolist() == [True, True, False]
    with pytest.raises(dataclasses.FrozenInstanceError):
        untyped(many).obs = 1


def test_one_environment_loads_no_vec() -> None:
    script = (
        "import sys\n"
        "from entity_env import EpisodeEnv\n"
        "from tests.helpers.tiny_games import count\n"
        "EpisodeEnv.of(count).close()\n"
        "print('entity_env.vec' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, check=True)
    assert done.stdout == b"False\n"


def test_the_base_class_builds_what_of_makes() -> None:
    built: One = EpisodeEnv.build(snake, 42)
    with built, EpisodeEnv.of(snake, seed=42) as made:
        assert type(built) is EpisodeOfGame
        expected = made.reset_with_index(3)
        for name, entities in built.reset_with_index(3).features.items():
            np.testing.assert_array_equal(entities, expected.features[name])
    with pytest.raises(SchemaError, match="an EpisodeEnv needs a Game"):
        EpisodeEnv.build(5, 42)


def test_a_class_that_calls_the_build_of_the_base_class_is_told() -> None:
    class Own(EpisodeOfEnvironment):
        @classmethod
        def build(cls, config: Callable[[], Environment], seed: int) -> Self:
            return super(EpisodeOfEnvironment, cls).build(config, seed)

    with pytest.raises(NotImplementedError, match=r"Own has no build\(\)"):
        Own.build(Walk, 1)


def test_spaces_are_those_of_the_source() -> None:
    walk = Walk()
    for env in (EpisodeEnv.of(walk), EpisodeEnv.of(Walk, num_envs=2)):
        assert env.obs_space() == walk.obs_space()
        assert env.action_space() == walk.action_space()
        env.close()
    with EpisodeEnv.of(snake) as of_game:
        assert of_game.obs_space() == snake.obs_space()
        assert of_game.action_space() == snake.action_space()


def test_a_class_without_spaces_says_so() -> None:
    class Bare(EpisodeOfEnvironment):
        obs_space = EpisodeEnv.obs_space
        action_space = EpisodeEnv.action_space

    env = Bare(Walk())
    for ask_for in (env.obs_space, env.action_space):
        with pytest.raises(NotImplementedError, match=r"Bare has no \w+_space\(\)"):
            ask_for()
