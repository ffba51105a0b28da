"""VecEnv in this process: call order, errors with location, views, and closing."""

import gc
import re
import signal
import traceback
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any, get_args

import numpy as np
import pytest
from numpy.typing import NDArray

from entity_env import (
    Action,
    ActionName,
    ActionSpace,
    Categorical,
    Environment,
    Game,
    GlobalCategoricalActionMask,
    GlobalCategoricalActionSpace,
    Obs,
    Observation,
    ObsSpace,
    ProtocolError,
    SchemaError,
    UsageError,
    WorkerError,
)
from entity_env.agents import Agent, TrainAgentEnv
from entity_env.agents.channels import thread_channel
from entity_env.agents.channels.channel import Transport
from entity_env.agents.channels.thread_channel import ThreadChannel
from entity_env.core.seeding import EpisodeSeeds
from entity_env.core.spaces import Entity
from entity_env.vec import VecEnv
from tests.helpers.executors import SteppedGame
from tests.helpers.strategies import untyped
from tests.helpers.tiny_games import (
    Dot,
    Move,
    Play,
    ask,
    chaos,
    count,
    dots_game,
)
from tests.helpers.worker_games import Lamp, crowd

TRANSPORTS: tuple[Transport, ...] = get_args(Transport)
each_transport = pytest.mark.parametrize("transport", TRANSPORTS)
needs_alarm = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no SIGALRM here")


def stay(num_envs: int) -> dict[str, NDArray[np.int64]]:
    return {"Move": np.ones(num_envs, np.int64)}


def play_forever(agent: Agent, *, seed: int) -> None:
    while ask(agent) is not None:
        pass


class Counter(Environment):
    """An environment whose `reset` takes no seed, like those written for entity-gym."""

    made: int = 0
    closed: int = 0

    def __init__(self) -> None:
        type(self).made += 1
        self.left = 0

    def obs_space(self) -> ObsSpace:
        return ObsSpace(entities={"Dot": Entity(["x"])})

    def action_space(self) -> Mapping[ActionName, ActionSpace]:
        return {"Move": GlobalCategoricalActionSpace(["LEFT", "STAY", "RIGHT"])}

    def reset(self) -> Observation:  # type: ignore[override]
        self.left = 2
        return self._show(reward=0)

    def act(self, actions: Mapping[ActionName, Action]) -> Observation:
        self.left -= 1
        return self._show(reward=1)

    def close(self) -> None:
        type(self).closed += 1

    def _show(self, reward: float) -> Observation:
        return Observation(
            reward=reward,
            terminated=not self.left,
            features={"Dot": [[self.left]]},
            actions={"Move": GlobalCategoricalActionMask()},
        )


@pytest.fixture(autouse=True)
def counters() -> None:
    Counter.made = Counter.closed = 0


class TestSource:
    def test_an_environment_class(self) -> None:
        with VecEnv(Counter, 2) as vec:
            assert Counter.made == 2
            assert vec.reset().features["Dot"].values.tolist() == [[2], [2]]
            rewards = [vec.act(stay(2)).reward.tolist() for _ in range(4)]
            assert rewards == [[1, 1]] * 4
        assert Counter.closed == 2

    @pytest.mark.parametrize("num_workers", [0, 2])
    @pytest.mark.parametrize("source", [3, None, "snake", Lamp(), lambda: 3])
    def test_what_cannot_be_run(self, source: Any, num_workers: int) -> None:  # noqa: ANN401
        message = "<lambda>.* returned a int|needs a Game, an Environment class, or a function"
        with pytest.raises(SchemaError, match=message):
            VecEnv(source, 2, num_workers)

    def test_environments_of_a_function_that_raises_are_closed(self) -> None:
        def make() -> Environment:
            if Counter.made == 2:
                raise OSError("no more")
            return Counter()

        with pytest.raises(OSError, match="no more"):
            VecEnv(make, 3)
        assert Counter.closed == 2

    def test_an_environment_for_several_agents(self) -> None:
        def play(agents: Sequence[Agent], *, seed: int) -> None:
            ask(agents[0])

        game = dots_game(play, num_agents=2)
        with (
            VecEnv(lambda: TrainAgentEnv(game), 1) as vec,
            pytest.raises(ProtocolError, match="is for 2 agents"),
        ):
            vec.reset()

    def test_an_environment_with_episodes_that_are_over_at_once(self) -> None:
        class Over(Counter):
            def reset(self) -> Observation:  # type: ignore[override]
                self.left = 0
                return self._show(reward=0)

        for autoreset in ("next_step", "disabled"):
            with VecEnv(Over, 1, autoreset=autoreset) as vec:
                batch = vec.reset()
                assert batch.terminated.tolist() == [True]
                assert [episode.length for episode in batch.episodes] == [0]
        with (
            VecEnv(Over, 1) as vec,
            pytest.raises(ProtocolError, match=r"^1000 episodes in a row .*\(env 0, seed"),
        ):
            vec.reset()

    def test_an_environment_whose_reset_is_seeded(self) -> None:
        seeds: list[int | None] = []

        class Seeded(Counter):
            def reset(self, *, seed: int | None = None) -> Observation:
                seeds.append(seed)
                return super().reset()

        with VecEnv(Seeded, 1, seed=4) as vec:
            vec.reset()
            vec.act(stay(1))
            batch = vec.act(stay(1))
        assert seeds == [EpisodeSeeds(4, 0)[i] for i in range(2)]
        assert batch.episodes[0].seed == seeds[0]

    def test_environments_that_fail_to_close(self) -> None:
        class Stuck(Counter):
            def close(self) -> None:
                super().close()
                if Counter.closed + Stuck.closed == 1:
                    raise OSError("stuck")

        vec = VecEnv(Stuck, 3)
        with pytest.raises(OSError, match="stuck"):
            vec.close()
        assert Stuck.closed == 3
        vec.close()
        assert Stuck.closed == 3


class TestErrorsOfTheGame:
    """They name environment, seed, episode and step; `reset` works afterwards."""

    def play(self, agent: Agent, *, seed: int) -> None:
        for i in range(3):
            if seed == EpisodeSeeds(0, 1)[2] and i == 2:
                raise OSError("the board is on fire")
            ask(agent, score=i)
        agent.game_over(Obs(3))

    @each_transport
    def test_in_a_step(self, transport: Transport) -> None:
        with VecEnv(dots_game(self.play), 3, transport=transport) as vec:
            vec.reset()
            for _ in range(7):
                vec.act(stay(3))
            with pytest.raises(WorkerError, match="the game raised OSError: the board") as caught:
                vec.act(stay(3))
            error = caught.value
            assert (error.env_id, error.episode, error.step, error.worker) == (1, 2, 2, None)
            assert error.seed == EpisodeSeeds(0, 1)[2]
            assert f"(env 1, seed {error.seed}, episode 2, step 2)" in str(error)
            assert 'raise OSError("the board is on fire")' in error.game_traceback
            assert isinstance(error.__cause__, OSError)
            assert traceback.extract_tb(error.__cause__.__traceback__)[-1].name == "play"
            with pytest.raises(ProtocolError, match="call reset first"):
                vec.act(stay(3))
            assert len(vec.reset()) == 3
            for _ in range(4):
                vec.act(stay(3))

    @pytest.mark.parametrize("of", ["games", "environments"])
    def test_at_reset(self, of: str) -> None:
        def play(agent: Agent, *, seed: int) -> None:
            if seed == EpisodeSeeds(0, 1)[0]:
                raise OSError("no such level")
            play_forever(agent, seed=seed)

        game = dots_game(play)
        source = game if of == "games" else lambda: SteppedGame(game, "greenlet")
        with VecEnv(source, 2) as vec:
            with pytest.raises(WorkerError, match="no such level") as caught:
                vec.reset()
            assert (caught.value.env_id, caught.value.episode, caught.value.step) == (1, 0, 0)
            vec.reset()  # starts the next episodes
            vec.act(stay(2))

    def test_of_one_agent_among_several(self) -> None:
        """The error names the current episode, although another agent's episode is over."""

        def play(agents: Sequence[Agent], *, seed: int) -> None:
            agents[0].game_over()
            ask(agents[1])
            raise OSError("broken")

        with VecEnv(dots_game(play, num_agents=2), 1) as vec:
            vec.reset()
            with pytest.raises(WorkerError) as caught:
                vec.act(stay(1))
            assert (caught.value.episode, caught.value.step) == (0, 1)
            assert caught.value.seed == EpisodeSeeds(0, 0)[0]

    @pytest.mark.parametrize(
        "play",
        [
            pytest.param(lambda agent, *, seed: None, id="asks nothing"),
            pytest.param(lambda agent, *, seed: ask(agent) and None, id="asks once"),
        ],
    )
    def test_play_that_returns_without_game_over(self, play: Play) -> None:
        def step(vec: VecEnv) -> None:
            vec.reset()
            vec.act(stay(2))

        with VecEnv(dots_game(play), 2) as vec:
            with pytest.raises(ProtocolError, match="play returned without game_over") as caught:
                step(vec)
            assert "(env 0, seed " in str(caught.value)


BAD_OBSERVATIONS: dict[str, tuple[Callable[[], Obs], str]] = {
    "not a number": (
        lambda: Obs().entities([Dot(1), Dot(float("nan"))]),
        "env 2: entity Dot: feature 'x' of row 1 must be finite, got nan",
    ),
    "none": (
        lambda: Obs().entities([Dot(None)]),  # type: ignore[arg-type]
        "env 2: entity Dot: feature 'x' of row 0 must be a number",
    ),
    "no choice": (lambda: Obs().mask(Move, [False] * 3), "no legal choice"),
    "visible": (lambda: Obs().entities([Dot(0)]).visible(Dot, []), "env 2.* visible of Dot needs"),
    "score": (lambda: Obs(float("nan")), "env 2: the score, or reward, must be finite: got nan"),
}


@pytest.mark.parametrize("when", ["reset", "act", "game_over"])
@pytest.mark.parametrize(("show", "message"), BAD_OBSERVATIONS.values(), ids=BAD_OBSERVATIONS)
def test_a_bad_observation_is_named(show: Callable[[], Obs], message: str, when: str) -> None:
    if when == "reset" and "score" in message:
        pytest.skip("the first score of an episode earns nothing")
    envs = iter(range(100))

    def play(agent: Agent, *, seed: int) -> None:
        if next(envs) != 2:
            play_forever(agent, seed=seed)
        if when != "reset":
            ask(agent)
        if when == "game_over":
            agent.game_over(show())
        else:
            agent.act(show(), Move)

    def step(vec: VecEnv) -> None:
        vec.reset()
        vec.act(stay(4))

    with VecEnv(dots_game(play), 4) as vec:
        if when == "game_over" and show().masks:
            step(vec)  # no actor is asked, so masks do not matter
            return
        with pytest.raises(SchemaError, match=message) as caught:
            step(vec)
        assert "env 2" in str(caught.value)
        step_number = 0 if when == "reset" else 1
        assert re.search(rf"seed \d+, episode 0, step {step_number}", str(caught.value))
        if when != "game_over":  # the game has continued since
            assert re.search(rf"{Path(__file__).name}:\d+ in play\)", str(caught.value))
        vec.reset()
        vec.act(stay(4))


def test_actors_that_are_missing_are_named() -> None:
    def play(agent: Agent, *, seed: int) -> None:
        agent.act(Obs().entities([Dot(0)]), Categorical(Move))

    game = Game(play, entities=(Dot,), actions=(Categorical(Move),))
    message = "asks every actor, but the observation marks none"
    with VecEnv(game, 2) as vec, pytest.raises(SchemaError, match=message):
        vec.reset()


class TestViews:
    """Arrays of a batch are valid until the next batch."""

    def play(self, agent: Agent, *, seed: int) -> None:
        x = 0
        while ask(agent, x=x) is not None:
            x += 1

    def test_are_reused(self) -> None:
        with VecEnv(dots_game(self.play), 4) as vec:
            features = vec.reset().features["Dot"].values
            kept = features.copy()
            later = [vec.act(stay(4)).features["Dot"].values for _ in range(4)]
            assert any(np.shares_memory(features, values) for values in later)
            assert not np.array_equal(features, kept)

    @pytest.mark.parametrize("num_workers", [0, 2])
    def test_outlive_the_vec_env(self, num_workers: int) -> None:
        vec = VecEnv(crowd, 2, num_workers)
        vec.reset()
        batch = vec.act(stay(2))
        vec.close()
        del vec
        gc.collect()
        assert batch.features["Dot"].lengths.tolist() == [100_000] * 2
        assert batch.features["Dot"].values[-1] == 99_999

    def test_torch_takes_them_without_a_copy(self) -> None:
        torch = pytest.importorskip("torch")
        with VecEnv(chaos, 8, autoreset="next_step") as vec:
            batch = vec.reset()
            arrays: list[NDArray[Any]] = [features.values for features in batch.features.values()]
            arrays += [features.lengths for features in batch.features.values()]
            arrays += [mask.actors.values for mask in batch.action_masks.values()]
            arrays += [batch.reward, batch.terminated, batch.truncated, batch.env_id]
            for array in arrays:
                tensor = torch.from_numpy(array)
                assert tensor.data_ptr() == array.ctypes.data or not array.size
                assert tuple(tensor.shape) == array.shape

    def test_final_ones_too(self) -> None:
        with VecEnv(count, 2) as vec:
            vec.reset()
            for _ in range(3):
                batch = vec.act(stay(2))
            assert batch.final is not None
            assert batch.final.features["Dot"].values.tolist() == [[3], [3]]
            assert batch.features["Dot"].values.tolist() == [[0], [0]]
            assert not np.shares_memory(
                batch.final.features["Dot"].values, batch.features["Dot"].values
            )


class TestClose:
    @each_transport
    def test_after_an_error_of_a_game(self, transport: Transport) -> None:
        ends = []

        def play(agent: Agent, *, seed: int) -> None:
            try:
                ask(agent)
                if seed == EpisodeSeeds(0, 1)[0]:
                    raise OSError("broken")
                ask(agent)
            finally:
                ends.append(seed)

        vec = VecEnv(dots_game(play), 3, transport=transport)
        vec.reset()
        with pytest.raises(WorkerError):
            vec.act(stay(3))
        vec.close()
        assert len(ends) == 3

    def test_of_games_that_fail_on_the_way_out(self) -> None:
        ends: list[int] = []

        def play(agent: Agent, *, seed: int) -> None:
            try:
                play_forever(agent, seed=seed)
            finally:
                ends.append(seed)
                raise OSError(f"number {len(ends)}")

        vec = VecEnv(dots_game(play), 3)
        vec.reset()
        with pytest.raises(OSError, match="number 1"):
            vec.close()
        assert len(ends) == 3
        vec.close()

    def test_of_environments_without_close(self) -> None:
        vec = VecEnv(Counter, 3)
        vec.reset()
        del vec
        gc.collect()
        assert Counter.closed == 3


def play_hang(agent: Agent, *, seed: int, hangs: bool = True) -> None:
    """Asks one question; then the first episode of env 1 hangs."""
    ask(agent)
    if seed == EpisodeSeeds(0, 1)[0]:
        hang()
    agent.game_over()


def hang() -> None:
    while True:
        pass


@pytest.fixture(params=[pytest.param("alarm", marks=needs_alarm), "watchdog"])
def clock(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ways to enforce a step timeout: SIGALRM, or a thread on systems without that signal."""
    if request.param == "watchdog":
        monkeypatch.delattr(signal, "setitimer", raising=False)
        monkeypatch.setattr(thread_channel, "_NO_LIMIT_S", 0.01)
        monkeypatch.setattr(ThreadChannel._wait, "__defaults__", (0.01,))


class TestAGameThatHangsInThisProcess:
    @pytest.mark.usefixtures("clock")
    @each_transport
    def test_is_ended_and_named_with_its_stack(self, transport: Transport) -> None:
        game = dots_game(play_hang)
        with VecEnv(game, 3, transport=transport, step_timeout_s=0.2) as vec:
            vec.reset()
            with pytest.raises(
                WorkerError, match=r"the game hangs: no answer for 0\.2 s"
            ) as caught:
                vec.act(stay(3))
            error = caught.value
            assert (error.env_id, error.episode, error.step) == (1, 0, 1)
            assert error.seed == EpisodeSeeds(0, 1)[0]
            assert re.search(r"in play_hang\n(.*\n)+?.*in hang\n", error.game_traceback)
            vec.reset()
            assert len(vec.act(stay(3)).episodes) == 3

    @pytest.mark.usefixtures("clock")
    def test_begins_anew_with_restart(self) -> None:
        with VecEnv(dots_game(play_hang), 3, on_error="restart", step_timeout_s=0.2) as vec:
            vec.reset()
            ended = vec.act(stay(3)).episodes
            assert [dict(e.metrics) for e in ended if e.truncated] == [{"error": 1.0}]
            assert len(vec.act(stay(3)).episodes) == 3

    @pytest.mark.usefixtures("clock")
    def test_may_be_an_environment(self) -> None:
        class Hangs(SteppedGame):
            def act(self, actions: Mapping[ActionName, Action]) -> Observation:
                hang()
                return super().act(actions)

        with VecEnv(lambda: Hangs(count, "greenlet"), 2, step_timeout_s=0.2) as vec:
            vec.reset()
            with pytest.raises(WorkerError, match="the game hangs") as caught:
                vec.act(stay(2))
            assert (caught.value.env_id, caught.value.step) == (0, 0)

    @needs_alarm
    def test_handler_and_timer_of_the_program_are_put_back(self) -> None:
        def own(number: int, frame: object) -> None:
            pass

        before = signal.signal(signal.SIGALRM, own)
        timer = signal.setitimer(signal.ITIMER_REAL, 60, 7)
        try:
            with VecEnv(dots_game(play_hang), 2, on_error="restart", step_timeout_s=0.2) as vec:
                vec.reset()
                vec.act(stay(2))
                vec.reset()
            assert signal.getsignal(signal.SIGALRM) is own
            left_s, interval_s = signal.getitimer(signal.ITIMER_REAL)
            assert 0 < left_s < 60
            assert interval_s == 7
        finally:
            signal.setitimer(signal.ITIMER_REAL, *timer)
            signal.signal(signal.SIGALRM, before)

    def test_nothing_is_raised_elsewhere_than_in_the_main_thread(self) -> None:
        lengths: list[int] = []

        def play() -> None:
            with VecEnv(count, 1, step_timeout_s=0.001) as vec:
                vec.reset()
                lengths.append(len(vec.act(stay(1))))

        thread = Thread(target=play)
        thread.start()
        thread.join()
        assert lengths == [1]


@pytest.mark.parametrize("timeout_s", [0, -1, float("nan"), float("inf"), "1"])
def test_a_step_timeout_that_makes_no_sense(timeout_s: Any) -> None:  # noqa: ANN401
    for num_workers in (0, 1):
        with pytest.raises(UsageError, match="step_timeout_s must be a number of seconds above 0"):
            VecEnv(count, 1, num_workers, step_timeout_s=timeout_s)


BAD_METRICS: dict[str, tuple[dict[Any, Any], str]] = {
    "name is a number": ({5: 1.0}, r"the name of a metric must be a text, got 5 \(int\)"),
    "name is half a character": ({"\ud800": 1.0}, r"metric '\\ud800' must be a text that UTF-8"),
    "name with NUL": ({"a\0b": 1.0}, r"metric 'a\\x00b' must be a text"),
    "text": ({"good": 1.0, "bad": "x"}, "the metric 'bad' must be a number, got 'x'"),
    "none": ({"bad": None}, "the metric 'bad' must be a number, got None"),
    "array": ({"bad": np.zeros(1)}, r"the metric 'bad' must be a number, got array\(\[0"),
    "complex": ({"bad": 1j}, "the metric 'bad' must be a number, got 1j"),
    "beyond floats": ({"bad": 10**400}, "the metric 'bad' must be a number, got 1000"),
    "no mapping": (untyped([1]), r"metrics must be a mapping from names to numbers, got \[1\]"),
}


def play_metric(
    agent: Agent, *, seed: int, bad: dict[Any, Any] | None = None, is_last: bool = False
) -> None:
    """Attaches a metric, which is wrong in the second observation."""
    agent.act(Obs().entities([Dot(0)]).metric("asked", 2), Move)
    obs = Obs().entities([Dot(0)])
    obs.metrics = bad if seed == EpisodeSeeds(0, 1)[0] else {"asked": 2.0}
    if not is_last:
        agent.act(obs, Move)
    agent.game_over(obs if is_last else None)


@pytest.mark.parametrize("is_last", [False, True])
@pytest.mark.parametrize("num_workers", [0, 1])
@pytest.mark.parametrize(("bad", "message"), BAD_METRICS.values(), ids=BAD_METRICS)
def test_a_bad_metric_is_named_and_breaks_nothing_later(
    bad: dict[Any, Any], message: str, num_workers: int, is_last: bool
) -> None:
    if is_last and "mapping" in message:
        pytest.skip("game_over itself raises then")
    game = dots_game(partial(play_metric, bad=bad, is_last=is_last))
    with VecEnv(game, 3, num_workers) as vec:
        vec.reset()
        place = rf"env 1: .*{message}.*\(seed {EpisodeSeeds(0, 1)[0]}, episode 0, step 1"
        with pytest.raises(SchemaError, match=place):
            vec.act(stay(3))
        vec.reset()
        asked = vec.act(stay(3)).metrics["asked"]
        assert (asked.sum / asked.count, asked.max) == (2, 2)


ODD_SCORES = [None, "x", b"1", 1j, np.array([2.0]), np.array([1.0, 2.0]), [1], 10**400]


def play_score(agent: Agent, *, seed: int, score: Any, when: int) -> None:  # noqa: ANN401
    for i in range(3):
        agent.act(Obs(score if i == when and seed % 2 else 0.0).entities([Dot(0)]), Move)
    agent.game_over(Obs(score if when == 3 and seed % 2 else 0.0))


ODD_SEED = next(seed for seed in range(9) if EpisodeSeeds(seed, 0)[0] % 2)


@pytest.mark.parametrize("when", range(4))
@pytest.mark.parametrize("score", ODD_SCORES, ids=lambda score: str(score)[:9])
def test_an_odd_score_is_named(score: Any, when: int) -> None:  # noqa: ANN401
    def play(vec: VecEnv) -> None:
        vec.reset(ODD_SEED)
        for _ in range(3):
            vec.act(stay(vec.num_envs))

    game = dots_game(partial(play_score, score=score, when=when))
    for num_envs in (1, 2):
        with VecEnv(game, num_envs) as vec:
            with pytest.raises(SchemaError, match="must be a number, got") as caught:
                play(vec)
            seed = EpisodeSeeds(ODD_SEED, 0)[0]
            place = rf"env 0.*seed {seed}, episode 0, step {when}, at .*:\d+ in play_score\)"
            assert re.search(place, str(caught.value))


@pytest.mark.parametrize("when", [0, 3])
def test_a_score_beyond_float32_is_named(when: int) -> None:
    """Without an additional numpy warning."""

    def play(vec: VecEnv) -> None:
        vec.reset(ODD_SEED)
        for _ in range(3):
            vec.act(stay(2))

    game = dots_game(partial(play_score, score=1e39, when=when))
    with VecEnv(game, 2) as vec, pytest.raises(SchemaError, match=r"env 0.*step \d"):
        play(vec)


@pytest.mark.parametrize("score", [Fraction(1, 2), np.float32(0.5), np.array(0.5), True, 2**60])
def test_any_real_number_is_a_score(score: Any) -> None:  # noqa: ANN401
    with VecEnv(dots_game(partial(play_score, score=score, when=1)), 1) as vec:
        vec.reset(ODD_SEED)
        assert vec.act(stay(1)).reward.tolist() == [np.float32(float(score))]


def test_an_agent_may_begin_its_next_episode_before_the_others_end_theirs() -> None:
    """With `same_step`, in which no agent has to wait."""

    def play(agents: Sequence[Agent], *, seed: int) -> None:
        for i in range(3):
            _ = agents[0].act_async(Obs().entities([Dot(i)]), Move)
            agents[1].act(Obs(i).entities([Dot(10 + i)]), Move)
            agents[0].game_over(Obs(1))
        agents[1].game_over()

    game = dots_game(play, num_agents=2, respawns=True)
    with VecEnv(game, 1) as vec:
        vec.reset()
        batch = vec.act(stay(2))
        assert [(e.agent_id, e.number) for e in batch.episodes] == [(0, 0)]
        assert batch.features["Dot"].values.tolist() == [[1], [11]]
        assert batch.reward.tolist() == [1, 1]
        vec.act(stay(2))
        batch = vec.act(stay(2))
        assert [(e.agent_id, e.number, e.length) for e in batch.episodes] == [(0, 2, 1), (1, 0, 3)]
    with VecEnv(game, 1, autoreset="next_step") as vec:
        vec.reset()
        with pytest.raises(ProtocolError, match="after its game_over"):
            vec.act(stay(2))
