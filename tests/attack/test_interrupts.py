"""Interrupts (Ctrl-C) before every line of a call: state is then valid, or a reset restores it.

Each test visits the lines in random order, each one once before any is repeated. `make attack` has
time for most of them, `make test` for some.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest

from entity_env import (
    ClosedError,
    GlobalCategoricalAction,
    Observation,
    ProtocolError,
    VecObs,
)
from entity_env.agents import TrainAgentEnv
from entity_env.agents.channels.channel import Transport
from entity_env.core.vec_env_base import env_seeds
from entity_env.vec import Autoreset, BatchVecEnv, VecEnv
from entity_env.vec.batch_env.source import SequenceSeeds
from tests.attack.budget import Attack
from tests.attack.interrupter import Interrupter, suspended_games
from tests.attack.told_games import ToldEnv, told_game
from tests.attack.told_model import ToldModel, actions_for, seed_of
from tests.vec.batch_env.corridor import Corridor

NUM_ENVS = 3
ALL_LINES = 10**9
"""More lines than any call has."""


@dataclass(frozen=True)
class Executor:
    """Kind of `VecEnv` that is interrupted."""

    kind: str
    autoreset: Autoreset = "same_step"
    transport: Transport = "greenlet"
    num_workers: int = 0

    def make(self) -> VecEnv:
        source = ToldEnv if self.kind == "environment" else told_game(self.kind)
        return VecEnv(
            source,
            NUM_ENVS,
            self.num_workers,
            autoreset=self.autoreset,
            transport=self.transport,
            step_timeout_s=3.0 if self.num_workers else None,
        )

    def model(self) -> ToldModel:
        return ToldModel(NUM_ENVS, self.autoreset, self.kind)

    def __str__(self) -> str:
        workers = f"-{self.num_workers} workers" if self.num_workers else ""
        return f"{self.kind}-{self.autoreset}-{self.transport}{workers}"


IN_PROCESS = [
    *(Executor("global", mode) for mode in ("same_step", "next_step", "disabled")),
    *(Executor("environment", mode) for mode in ("same_step", "next_step", "disabled")),
    Executor("actors"),
    Executor("masked"),
    Executor("masked", "disabled"),
    Executor("global", transport="thread"),
]
WORKERS = [
    Executor("global", num_workers=1),
    Executor("masked", "disabled", num_workers=2),
    Executor("environment", "next_step", num_workers=2),
]


class Run:
    """A `VecEnv` that is interrupted repeatedly, as in a notebook."""

    def __init__(self, executor: Executor, attack: Attack) -> None:
        self.vec = executor.make()
        self.model = executor.model()
        self._attack = attack
        self._executor = executor
        self._num_seeds = 0
        self._obs: VecObs | None = None
        self.calls: dict[str, Callable[[Interrupter, int], bool]] = {
            "act": self.act,
            "send and recv": self.send_and_recv,
            "reset": self.reset,
            "reset with a seed": self.reset_with_seed,
            "render": self.render,
        }
        if executor.autoreset == "disabled":
            self.calls["reset_envs"] = self.reset_envs

    def prepare(self) -> VecObs:
        """Resets and takes a few steps, all checked."""
        obs = self.vec.reset()
        self.model.after_reset(obs)
        for _ in range(self._attack.rng.randrange(3)):
            if self._is_waiting_for_reset():
                break
            obs = self.vec.act(actions_for(obs))
            self.model.after_act(obs)
        return obs

    def act(self, interrupter: Interrupter, number: int) -> bool:
        """An interrupted `act` may be called again: it works, or reports that a reset is needed."""
        obs = self.prepare()
        if self._is_waiting_for_reset():
            obs = self._reset_over()
        actions = actions_for(obs)
        shown: list[VecObs] = []
        num_steps = self.vec.statistics().num_steps
        is_struck = interrupter.strike(lambda: shown.append(self.vec.act(actions)), number)
        is_done = self.vec.statistics().num_steps > num_steps
        if shown:
            self.model.after_act(shown[0])
        elif not is_done and self._attack.rng.random() < 0.5:
            try:
                again = self.vec.act(actions)
            except ProtocolError:
                self.model.cut()
            else:
                self.model.after_act(again)
        else:
            self.model.cut()
        return is_struck

    def send_and_recv(self, interrupter: Interrupter, number: int) -> bool:
        """After an interrupt in `send` or `recv`, `recv` may be called (again)."""
        obs = self.prepare()
        if self._is_waiting_for_reset():
            obs = self._reset_over()
        actions = actions_for(obs)
        num_received = 0

        def receive() -> None:
            nonlocal num_received
            while num_received < NUM_ENVS:
                part = self.vec.recv(1)
                with interrupter.paused():
                    num_received += len(part)
                    self.model.after_act(part)

        def exchange() -> None:
            self.vec.send(actions)
            receive()

        is_struck = interrupter.strike(exchange, number)
        try:
            receive()
        except ProtocolError:
            self.model.cut()
        return is_struck

    def reset(self, interrupter: Interrupter, number: int) -> bool:
        self.prepare()
        is_struck = interrupter.strike(self.vec.reset, number)
        self.model.cut()
        return is_struck

    def reset_with_seed(self, interrupter: Interrupter, number: int) -> bool:
        self.prepare()
        self._num_seeds += 1
        is_struck = interrupter.strike(partial(self.vec.reset, self._num_seeds), number)
        if is_struck:
            self.model.cut(self._num_seeds)
        else:
            self.model.begin_run(self._num_seeds, range(NUM_ENVS))
            self.model.cut()
        return is_struck

    def reset_envs(self, interrupter: Interrupter, number: int) -> bool:
        self.prepare()
        mask = [self._attack.rng.random() < 0.5 for _ in range(NUM_ENVS)]
        is_struck = interrupter.strike(partial(self.vec.reset_envs, mask), number)
        self.model.cut()
        return is_struck

    def render(self, interrupter: Interrupter, number: int) -> bool:
        """Changes nothing."""
        obs = self.prepare()
        is_struck = interrupter.strike(lambda: self._drawn(self.vec), number)
        if not self._is_waiting_for_reset():
            self.model.after_act(self.vec.act(actions_for(obs)))
        return is_struck

    def _drawn(self, vec: VecEnv) -> object:
        return vec.render(1)

    def _is_waiting_for_reset(self) -> bool:
        is_over = any(played.is_over for played in self.model.playing.values())
        return self._executor.autoreset == "disabled" and is_over

    def _reset_over(self) -> VecObs:
        over = [i for i, played in self.model.playing.items() if played.is_over]
        obs = self.vec.reset_envs([i in over for i in range(NUM_ENVS)])
        self.model.after_reset(obs, over)
        return obs


def places(attack: Attack, lengths: dict[str, int]) -> Iterator[tuple[str, int]]:
    """Pairs of a call and a line, each once in random order, then again."""
    wanted = [(call, n) for call, length in lengths.items() for n in range(1, length + 2)]
    while True:
        attack.rng.shuffle(wanted)
        yield from wanted


def interrupt_everywhere(executor: Executor, attack: Attack, by_instruction: bool) -> None:
    with Interrupter(by_instruction=by_instruction) as interrupter:
        run = Run(executor, attack)
        try:
            lengths: dict[str, int] = {}
            for name, call in run.calls.items():
                assert not call(interrupter, ALL_LINES)
                lengths[name] = interrupter.count
            for _, (name, number) in zip(attack.rounds(), places(attack, lengths), strict=False):
                attack.counts["interrupts"] += 1
                try:
                    is_struck = run.calls[name](interrupter, number)
                    run.prepare()
                except Exception as error:
                    error.add_note(f"{name}, interrupted before {number}: {interrupter.place}")
                    raise
                attack.counts["calls that ended before"] += not is_struck
        finally:
            run.vec.close()
    assert not suspended_games()


@pytest.mark.attack(0.7)
@pytest.mark.parametrize("executor", IN_PROCESS, ids=str)
def test_before_any_line(executor: Executor, attack: Attack) -> None:
    interrupt_everywhere(executor, attack, by_instruction=False)


@pytest.mark.attack(0.5)
@pytest.mark.parametrize("executor", IN_PROCESS, ids=str)
def test_at_any_instruction(executor: Executor, attack: Attack) -> None:
    interrupt_everywhere(executor, attack, by_instruction=True)


@pytest.mark.attack(1.0)
@pytest.mark.parametrize("executor", WORKERS, ids=str)
def test_with_workers(executor: Executor, attack: Attack) -> None:
    interrupt_everywhere(executor, attack, by_instruction=False)


@pytest.mark.attack(0.3)
@pytest.mark.parametrize("executor", [*IN_PROCESS, *WORKERS], ids=str)
def test_closing(executor: Executor, attack: Attack) -> None:
    """After an interrupt, `close` may be called again, and ends all games."""
    length = 1
    for i in attack.rounds():
        with Interrupter() as interrupter:
            vec = executor.make()
            vec.reset()
            number = 1 + (i if attack.is_full else attack.rng.randrange(length + 1))
            is_struck = interrupter.strike(vec.close, number if i else ALL_LINES)
            length = max(length, interrupter.count)
            attack.counts["interrupts"] += is_struck
            vec.close()
        assert not suspended_games(), interrupter.place
        with pytest.raises(ClosedError):
            vec.reset()


# Objects interrupted before they had an owner are closed with a warning when collected.
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
@pytest.mark.attack(0.3)
@pytest.mark.parametrize("executor", [IN_PROCESS[0], IN_PROCESS[3], *WORKERS], ids=str)
def test_making(executor: Executor, attack: Attack) -> None:
    """All resources are released; the fixtures check this."""
    length = 1
    for i in attack.rounds():
        made: list[VecEnv] = []
        with Interrupter() as interrupter:
            number = 1 + (i if attack.is_full else attack.rng.randrange(length + 1))
            interrupter.strike(partial(_make, executor, made), number if i else ALL_LINES)
            length = max(length, interrupter.count)
            attack.counts["interrupts"] += bool(interrupter.place)
        for vec in made:
            vec.close()
        if i % 50 == 49:
            gc.collect()
    gc.collect()


def _make(executor: Executor, made: list[VecEnv]) -> None:
    made.append(executor.make())


class Walk:
    """Model of a `BatchVecEnv` of corridors: positions, times, rewards, and starts of episodes."""

    def __init__(self, vec: VecEnv) -> None:
        self.vec = vec
        self.obs: VecObs | None = None
        self._at = np.zeros((NUM_ENVS, 2))
        self._earned = np.zeros(NUM_ENVS)
        self._began_at = np.zeros(NUM_ENVS)
        self._runs = [0]
        """Seeds of runs that have started."""
        self._seen: set[tuple[int, int, int]] = set()
        self._firsts: dict[tuple[int, int], int] = {}
        """Number of the first episode of the sequence, by environment and seed."""

    def begins(self, seed: int) -> None:
        """Allows a run with this seed to start."""
        self._runs.append(seed)

    def reset(self) -> VecObs:
        return self._after_reset(self.vec.reset())

    def act(self, actions: dict[str, Any]) -> VecObs:
        return self.after_act(self.vec.act(actions), actions)

    def _after_reset(self, obs: VecObs) -> VecObs:
        self._at = obs.features["Walker"].values.astype(np.float64)
        assert (self._at[:, 1] == 0).all(), self._at
        assert ((self._at[:, 0] >= 1) & (self._at[:, 0] <= 3)).all()
        assert not obs.reward.any()
        self._earned[:] = 0
        self._began_at[:] = self._at[:, 0]
        return obs

    def after_act(self, obs: VecObs, actions: dict[str, Any]) -> VecObs:
        """Checks a step against the rules of the corridor."""
        assert len(obs.action_masks["Walk"].actors.values) == NUM_ENVS
        self._at += np.stack([actions["Walk"] - 1, np.ones(NUM_ENVS)], axis=1)
        assert obs.reward.tolist() == self._at[:, 0].tolist()
        self._earned += self._at[:, 0]
        is_over = (self._at[:, 0] <= 0) | (self._at[:, 0] >= 4)
        is_cut = self._at[:, 1] >= 6
        assert obs.terminated.tolist() == is_over.tolist()
        assert obs.truncated.tolist() == is_cut.tolist()
        assert [e.env_id for e in obs.episodes] == np.flatnonzero(is_over | is_cut).tolist()
        shown = obs.features["Walker"].values
        for episode in obs.episodes:
            i = episode.env_id
            assert episode.reward == self._earned[i]
            assert episode.length == self._at[i, 1]
            self._check_start(i, episode.seed, episode.number)
            self._at[i] = shown[i]
            assert shown[i, 1] == 0
            self._earned[i], self._began_at[i] = 0, shown[i, 0]
        assert np.array_equal(shown, self._at)
        return obs

    def _check_start(self, env_id: int, seed: int, number: int) -> None:
        """Checks that the episode matches its seed and number, and was never played before."""
        key = env_id, seed, number
        assert key not in self._seen, f"played twice: {key}"
        self._seen.add(key)
        first = self._first_of(env_id, seed, number)
        starts = np.random.default_rng(seed)
        draws = [int(starts.integers(1, 4)) for _ in range(number - first + 1)]
        assert draws[-1] == self._began_at[env_id], (key, first, draws, self._began_at[env_id])

    def _first_of(self, env_id: int, seed: int, number: int) -> int:
        """Number of the first episode of a sequence: not 0 if it started automatically."""
        if (env_id, seed) in self._firsts:
            return self._firsts[env_id, seed]
        for run in reversed(self._runs):
            seeds = SequenceSeeds(int(env_seeds(run, np.array([env_id]))[0]))
            for first in range(number + 1):
                if seeds[first] == seed:
                    self._firsts[env_id, seed] = first
                    return first
        raise AssertionError(f"env {env_id} reports the seed {seed} at number {number}")


@pytest.mark.attack(1.0)
@pytest.mark.parametrize("by_instruction", [False, True], ids=["lines", "instructions"])
def test_batch_environment(by_instruction: bool, attack: Attack) -> None:
    with (
        Interrupter(by_instruction=by_instruction) as interrupter,
        BatchVecEnv(Corridor, NUM_ENVS) as vec,
    ):
        walk = Walk(vec)
        num_seeds = 0
        lengths = {"act": 1, "reset": 1, "seed": 1}
        for _ in attack.rounds(least=5):
            obs = walk.reset()
            for _ in range(attack.rng.randrange(8)):
                obs = walk.act(actions_for(obs, [attack.rng.randrange(3) for _ in range(NUM_ENVS)]))
            actions = actions_for(obs, [attack.rng.randrange(3) for _ in range(NUM_ENVS)])
            call = attack.rng.choice(list(lengths))
            number = attack.rng.randrange(lengths[call]) + 1
            shown: list[VecObs] = []
            num_seeds += 1
            if call == "seed":
                walk.begins(num_seeds * 10)
            run: dict[str, Callable[[], object]] = {
                "act": lambda: shown.append(vec.act(actions)),  # noqa: B023 - called at once
                "reset": vec.reset,
                "seed": partial(vec.reset, num_seeds * 10),
            }
            is_struck = interrupter.strike(run[call], number)
            attack.counts["interrupts"] += is_struck
            lengths[call] = max(lengths[call], interrupter.count + 1)
            if call == "act" and shown:
                walk.after_act(shown[0], actions)
            elif call == "act":
                try:
                    walk.act(actions)
                except ProtocolError:
                    continue


@pytest.mark.attack(0.5)
@pytest.mark.parametrize("transport", ["greenlet", "thread"])
def test_train_agent_env(transport: Transport, attack: Attack) -> None:
    """A game as an `Environment`: after an interrupt, only a reset works."""
    with Interrupter() as interrupter:
        env = TrainAgentEnv(told_game(), transport=transport)
        length = 1
        for _ in attack.rounds(least=400 if attack.is_full else 5):
            seeds = [_told_seed(env.reset())]
            call: Callable[[], object] = env.reset
            if attack.rng.random() < 0.6:
                call = partial(env.act, {"Move": GlobalCategoricalAction(1, "STAY")})
            is_struck = interrupter.strike(call, attack.rng.randrange(length) + 1)
            attack.counts["interrupts"] += is_struck
            length = max(length, interrupter.count + 1)
            seeds.append(_told_seed(env.reset()))
            assert seeds[0] != seeds[1]
        env.close()
    assert not suspended_games()


def _told_seed(observation: Observation) -> int:
    """Seed of the episode, from its first observation."""
    seed, step = seed_of(observation.features["Told"][0])
    assert step == 0
    return seed
