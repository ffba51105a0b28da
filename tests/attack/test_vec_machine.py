"""A `VecEnv` under any order of calls, interrupts and faults, compared with a plain model."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, seed as seeded, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from entity_env import ClosedError, ProtocolError, UsageError, VecObs, WorkerError
from entity_env.vec import VecEnv
from entity_env.vec.options import OnError
from tests.attack.budget import Attack
from tests.attack.interrupter import Interrupter, suspended_games
from tests.attack.test_interrupts import (
    IN_PROCESS,
    NUM_ENVS,
    WORKERS,
    Executor,
)
from tests.attack.told_games import told_game
from tests.attack.told_model import actions_for


class Machine(RuleBasedStateMachine):
    """Hypothesis state machine for one `VecEnv`; subclasses choose it."""

    executor: Executor
    on_error: OnError
    fault: str
    counts: Counter[str]

    def __init__(self) -> None:
        super().__init__()
        self.gate = Path(tempfile.mkdtemp()) / "fault"
        """Running games have the fault while this file exists."""
        self.interrupter = Interrupter()
        self.interrupter.__enter__()
        self.vec = self._made()
        self.model = replace(self.executor.model(), has_faults=True)
        self.open: list[VecObs] = []
        """Batches that were returned and still need actions."""
        self.busy: set[int] = set()
        self.num_resets = 0
        self.is_exact = True
        """False after an event that totals do not include."""
        self.is_closed = False
        self.was_faulty = False
        """A pending step may have failed, although games no longer fail."""

    def _made(self) -> VecEnv:
        executor = self.executor
        if executor.kind == "environment":
            return executor.make()
        return VecEnv(
            told_game(executor.kind, f"{self.fault}:{self.gate}"),
            NUM_ENVS,
            executor.num_workers,
            autoreset=executor.autoreset,
            transport=executor.transport,
            on_error=self.on_error,
            step_timeout_s=5.0 if executor.num_workers else None,
        )

    # State of the model.

    @property
    def error(self) -> type[Exception] | None:
        """The error that `act` raises now, whatever the actions."""
        if self.is_closed:
            return ClosedError
        if len(self.open) != 1 or self.busy or self._over():
            return ProtocolError
        return None

    def _over(self) -> list[int]:
        """Environments in the pending batch that wait for a reset."""
        if self.executor.autoreset != "disabled" or not self.open:
            return []
        shown = set(self.open[-1].env_id.tolist())
        return [i for i, p in self.model.playing.items() if p.is_over and i in shown]

    def _cut(self, seed: int | None = None) -> None:
        self.model.cut(seed)
        self.open, self.busy = [], set()
        self.is_exact = False

    def _try(self, call: Callable[[], VecObs]) -> VecObs | None:
        """Makes a call that may fail because of a fault."""
        try:
            return call()
        except WorkerError:
            assert self.gate.exists() or self.was_faulty
            self.counts["failed calls"] += 1
            self._cut()
            return None

    def _has_reset(self, obs: VecObs) -> None:
        self.model.after_reset(obs)
        self.open, self.busy = [obs], set()
        self.was_faulty = False

    def _has_acted(self, obs: VecObs) -> None:
        self.model.after_act(obs)
        self.counts["steps"] += 1
        self.counts["lost episodes"] += sum("error" in e.metrics for e in obs.episodes)

    # Calls in any order.

    @rule(is_new=st.booleans())
    def reset(self, is_new: bool) -> None:
        if self.is_closed:
            with pytest.raises(ClosedError):
                self.vec.reset()
            return
        if self.busy:
            self.is_exact = False  # the pending step is dropped
            self.model.cut()
        if is_new:
            self.num_resets += 1
            self.model.cut(self.num_resets)
        obs = self._try(partial(self.vec.reset, self.num_resets if is_new else None))
        if obs is not None:
            self._has_reset(obs)

    @rule(times=st.integers(1, 4))
    def act(self, times: int) -> None:
        for _ in range(times):
            error = self.error
            actions = actions_for(self.open[-1]) if self.open else {}
            if error is not None:
                with pytest.raises(error):
                    self.vec.act(actions)
                return
            obs = self._try(partial(self.vec.act, actions))
            if obs is not None:
                self._has_acted(obs)
                self.open = [obs]

    @rule()
    def send(self) -> None:
        if self.is_closed or not self.open or self._over():
            with pytest.raises(ClosedError if self.is_closed else ProtocolError):
                self.vec.send(actions_for(self.open[-1]) if self.open else {})
            return
        obs = self.open.pop()
        self.was_faulty |= self.gate.exists()
        self.vec.send(actions_for(obs), obs.env_id)
        self.busy |= set(obs.env_id.tolist())

    @rule(data=st.data())
    def recv(self, data: st.DataObject) -> None:
        if self.is_closed or not self.busy:
            with pytest.raises(ClosedError if self.is_closed else ProtocolError):
                self.vec.recv()
            return
        least = data.draw(st.none() | st.integers(0, len(self.busy) + 1))
        if least is not None and not 1 <= least <= len(self.busy):
            with pytest.raises(UsageError):
                self.vec.recv(least)
            return
        obs = self._try(partial(self.vec.recv, least))
        if obs is not None:
            shown = set(obs.env_id.tolist())
            assert shown <= self.busy
            assert len(shown) >= (len(self.busy) if least is None else least)
            self.busy -= shown
            self._has_acted(obs)
            self.open.append(obs)

    @rule(mask=st.lists(st.booleans(), min_size=NUM_ENVS, max_size=NUM_ENVS))
    def reset_envs(self, mask: list[bool]) -> None:
        if self.busy or not self.open or self.is_closed:
            with pytest.raises((ProtocolError, ClosedError)):
                self.vec.reset_envs(mask)
            return
        obs = self._try(partial(self.vec.reset_envs, mask))
        if obs is not None:
            self.model.after_reset(obs, [i for i, chosen in enumerate(mask) if chosen])
            self.open = [obs]

    @rule(env_id=st.integers(-1, NUM_ENVS))
    def render(self, env_id: int) -> None:
        error: type[Exception] | None = None
        if self.is_closed:
            error = ClosedError
        elif not (self.open or self.busy) or env_id in self.busy:
            error = ProtocolError
        elif not 0 <= env_id < NUM_ENVS:
            error = UsageError
        if error is None:
            assert self.vec.render(env_id).ndim == 3
        else:
            with pytest.raises(error):
                self.vec.render(env_id)

    @rule()
    def statistics(self) -> None:
        found = self.vec.statistics()
        if self.is_exact:
            assert found.num_episodes == self.model.num_episodes
            assert found.num_env_steps == self.model.num_env_steps
        else:
            assert found.num_episodes >= self.model.num_episodes
            assert found.num_env_steps >= self.model.num_env_steps

    @precondition(lambda self: not self.is_closed)
    @rule(name=st.sampled_from(["act", "reset", "recv", "render"]), place=st.integers(1, 1500))
    def interrupt(self, name: str, place: int) -> None:
        """Interrupts a call and then resets, as a user in a notebook would."""
        actions = actions_for(self.open[-1]) if self.open else {}
        calls: dict[str, Callable[[], object]] = {
            "act": lambda: self.vec.act(actions),
            "reset": self.vec.reset,
            "recv": self.vec.recv,
            "render": self.vec.render,
        }
        with suppress(ProtocolError, WorkerError):  # the wrong order, or a fault
            self.counts["interrupts"] += self.interrupter.strike(calls[name], place)
        self._cut()
        obs = self._try(self.vec.reset)
        if obs is not None:
            self._has_reset(obs)

    @rule(is_faulty=st.booleans())
    def toggle_fault(self, is_faulty: bool) -> None:
        """Turns the fault of running games on or off."""
        if is_faulty:
            self.gate.touch()
            self.is_exact = False
            self.was_faulty |= bool(self.busy)
        else:
            self.gate.unlink(missing_ok=True)

    @rule(is_closing=st.booleans())
    def fork(self, is_closing: bool) -> None:
        """A forked child ends, with or without closing its parent's `VecEnv`."""
        if self.executor.transport == "thread":
            return
        child = os.fork()
        if not child:
            try:
                if is_closing:
                    self.vec.close()
            finally:
                os._exit(0)
        os.waitpid(child, 0)

    @precondition(lambda self: self.num_resets > 2)
    @rule(is_sure=st.integers(0, 5))
    def close(self, is_sure: int) -> None:
        if not is_sure:
            self.vec.close()
            self.is_closed = True
            self.open, self.busy = [], set()

    def teardown(self) -> None:
        self.interrupter.__exit__()
        self.vec.close()
        self.gate.unlink(missing_ok=True)
        self.gate.parent.rmdir()


def play(executor: Executor, on_error: OnError, fault: str, attack: Attack) -> None:
    """Plays random orders until the time is up."""
    given = {"executor": executor, "on_error": on_error, "fault": fault, "counts": attack.counts}
    machine = type("Machine", (Machine,), given)
    num_examples = 20 if attack.is_full else 4
    if executor.num_workers:  # each example starts processes
        num_examples = 5 if attack.is_full else 1
    for _ in attack.rounds():
        seeded(attack.rng.randrange(2**32))(machine)
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=num_examples,
                stateful_step_count=30,
                deadline=None,
                database=None,
                phases=(Phase.generate,),  # shrinking has no time limit
                suppress_health_check=list(HealthCheck),
            ),
        )
    assert not suspended_games()


@pytest.mark.slow
@pytest.mark.attack(0.5)
@pytest.mark.parametrize("on_error", ["raise", "restart"])
@pytest.mark.parametrize("executor", IN_PROCESS, ids=str)
def test_in_process(executor: Executor, on_error: OnError, attack: Attack) -> None:
    play(executor, on_error, "raise", attack)


# Objects interrupted before they had an owner are closed with a warning when collected.
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
@pytest.mark.attack(1.0)
@pytest.mark.parametrize("fault", ["raise", "killed", "exit"])
@pytest.mark.parametrize("on_error", ["raise", "restart"])
@pytest.mark.parametrize("executor", WORKERS[:2], ids=str)
def test_with_workers(executor: Executor, on_error: OnError, fault: str, attack: Attack) -> None:
    play(executor, on_error, fault, attack)
