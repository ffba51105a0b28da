"""Conformance of a program to the protocol for games in other languages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from time import perf_counter
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.random import random_actions
from entity_env.authoring.game import Game
from entity_env.authoring.game_traceback import summary_of
from entity_env.core.seeding import SeedsFrom
from entity_env.core.vec_obs import VecActionMask, VecContinuousActionMask, VecObs
from entity_env.errors import ProtocolError, WorkerError
from entity_env.vec.external.batch import ProgramBatch
from entity_env.vec.external.game import ExternalGame
from entity_env.vec.external.messages import HEADER, MAGIC, Kind, json_payload
from entity_env.vec.external.program import reason_of_exit
from entity_env.vec.options import VecOptions
from entity_env.vec.step import CollectedStep, local_memory

_NUM_COPIES: Final = 3
_NUM_STEPS: Final = 12
_EXIT_S: Final = 5.0
"""Seconds that a program may take to exit."""
Shown: TypeAlias = Mapping[str, tuple[Sequence[int], bytes]]
"""Lengths and bytes of the arrays that one copy shows in a step."""
Show: TypeAlias = Callable[[str], None]


def program_violations(game: Game, seed: int, show: Show, stop_s: float) -> Iterator[str]:
    """Checks what a game does not need while it plays alone.

    Several copies in one program show what one copy shows, also after some of them are reset;
    requests may arrive in pieces; a program exits if its connection ends, and instead of answering
    an invalid request.

    Args:
        game: an `ExternalGame`; another game has no violations.
        show: called with the name of the stage at every step.
        stop_s: time of `perf_counter` after which nothing else is checked.
    """
    if not isinstance(game, ExternalGame):
        return
    try:
        yield from _differing_copies(game, seed, show)
    except (ProtocolError, WorkerError) as error:
        yield f"{_NUM_COPIES} copies in one program: {summary_of(error)}"
        return
    for case in _cases(game):
        if perf_counter() > stop_s:
            return
        show("sending requests")
        problem = case.problem(game)
        if problem:
            yield f"{case.what}, {problem}"
        if problem == _HANGS:
            return


# ---------------------------------------------------------------------------------------- copies


class _Copies:
    """Some copies of a game in one program, each with its own random actions."""

    def __init__(self, game: ExternalGame, num_copies: int) -> None:
        options = VecOptions(game, num_copies, 0, "disabled", None, "raise", 30.0, None, None)
        self.game = game
        self.batch = ProgramBatch(game, options, range(num_copies))
        num_rows = num_copies * game.num_agents
        self._memory = local_memory(num_copies, num_rows)
        self._env_id = np.repeat(np.arange(num_copies), game.num_agents)
        self._agent_id = np.tile(np.arange(game.num_agents), num_copies)
        self._draws = [np.random.default_rng(0)] * num_copies
        self._obs: VecObs | None = None
        self.is_over = np.zeros(num_copies, np.bool_)

    def reset(self, seeds: Mapping[int, int]) -> None:
        """Starts episodes of some copies."""
        for copy, seed in seeds.items():
            self.batch.seed_env(copy, (SeedsFrom(seed), 0))
            self._draws[copy] = np.random.default_rng(seed)
        self._show(self.batch.reset(sorted(seeds), self._memory))

    def act(self) -> None:
        """Steps every copy by random legal actions."""
        parts = []
        for copy, draws in enumerate(self._draws):
            obs = self._of(copy)
            masks = {name: _with_needed_flags(x) for name, x in obs.action_masks.items()}
            obs = replace(obs, action_masks=masks)
            parts.append(random_actions(obs, self.batch.spaces[1], draws))
        values = {name: np.concatenate([each[name] for each in parts]) for name in parts[0]}
        self._show(self.batch.act(values, self._memory))

    def _show(self, step: CollectedStep) -> None:
        self._obs = step.vec_obs(self._env_id, self._agent_id)
        self.is_over[:] = step.is_over

    def shown(self, copy: int) -> Shown:
        """The observations that a copy shows now."""
        obs = self._of(copy)
        found: dict[str, tuple[Sequence[int], bytes]] = {}

        def add(name: str, lengths: Sequence[int], values: NDArray[Any]) -> None:
            found[name] = lengths, values.tobytes()

        for name, rows in obs.features.items():
            add(f"entity {name!r}", rows.lengths.tolist(), rows.values)
        for name, flags in obs.visible.items():
            add(f"visible of {name!r}", flags.lengths.tolist(), flags.values)
        for action, mask in obs.action_masks.items():
            add(f"actors of {action!r}", mask.actors.lengths.tolist(), mask.actors.values)
            if (choices := getattr(mask, "mask", None)) is not None:
                add(f"mask of {action!r}", choices.lengths.tolist(), choices.values)
        add("reward", [], obs.reward)
        add("terminated", [], obs.terminated)
        add("truncated", [], obs.truncated)
        return found

    def _of(self, copy: int) -> VecObs:
        if self._obs is None:
            raise ProtocolError("the copies have not been reset")
        return self._obs.select(self._env_id == copy)


def _with_needed_flags(mask: VecActionMask) -> VecActionMask:
    """The mask without flags if they allow everything: random actions then draw other numbers.

    A copy that needs no flags has them if another copy of the program needs some.
    """
    if isinstance(mask, VecContinuousActionMask) or mask.mask is None or not mask.mask.values.all():
        return mask
    return replace(mask, mask=None, per_actor=None)


def _differing_copies(game: ExternalGame, seed: int, show: Show) -> Iterator[str]:
    """Plays several copies with resets of one of them, and each of their episodes alone."""
    playing = list(range(_NUM_COPIES))
    copies = _Copies(game, _NUM_COPIES)
    with closing(copies.batch):
        copies.reset({copy: seed + copy for copy in playing})
        episodes = [[copies.shown(copy)] for copy in playing]
        for step in range(_NUM_STEPS):
            show("playing several copies")
            copies.act()
            for copy, episode in enumerate(playing):
                episodes[episode].append(copies.shown(copy))
            over: list[int] = np.flatnonzero(copies.is_over).tolist()
            if over := over or ([1] if step == _NUM_STEPS // 2 else []):
                copies.reset({copy: seed + len(episodes) + i for i, copy in enumerate(over)})
                for copy in over:
                    playing[copy] = len(episodes)
                    episodes.append([copies.shown(copy)])
    alone = _Copies(game, 1)
    with closing(alone.batch):
        for episode, wanted in enumerate(episodes):
            show("playing one copy")
            alone.reset({0: seed + episode})
            for step, shown in enumerate(wanted):
                if step:
                    alone.act()
                found = alone.shown(0)
                if differing := [name for name, each in found.items() if shown.get(name) != each]:
                    yield (
                        f"with the seed {seed + episode}, one of {_NUM_COPIES} copies shows "
                        f"another {differing[0]} in step {step} than a copy that plays alone: "
                        "copies must not share state, and a reset must concern only the copies "
                        "that it names"
                    )
                    return


# -------------------------------------------------------------------------------------- requests

_HANGS: Final = f"it still runs after {_EXIT_S:g} s: it must exit"


class _Case(NamedTuple):
    """A request, and what a program must do.

    Args:
        what: the case, for a sentence.
        sent: pieces of bytes, sent with pauses, after the handshake.
        ends: the connection ends after them.
        num_steps: number of `STEP`s that they request.
        is_valid: the exit code must be 0.
        has_started: False = sent instead of `START`.
    """

    what: str
    sent: Sequence[bytes]
    ends: bool = False
    num_steps: int = 0
    is_valid: bool = False
    has_started: bool = True

    def problem(self, game: ExternalGame) -> str:
        """The fault in the program's reaction; "" if nothing is."""
        program = game.start_program(quiet=True)
        with closing(program):
            if self.has_started:
                program.start(_NUM_COPIES, game.values())
            received, code = program.last_words(
                self.sent, _EXIT_S, ends=self.ends, is_enough=self._has_wrong_answer
            )
        if self._has_wrong_answer(received):
            return "it sent an answer: it must exit, or send ERROR and exit"
        if code is None:
            return _HANGS
        if self.is_valid:
            num_steps = len(_kinds_in(received))
            if num_steps != self.num_steps:
                return f"it exited after {num_steps} answers, expected {self.num_steps}"
            return f"it {reason_of_exit(code)}, expected the code 0" if code else ""
        if code < 0:
            return f"it {reason_of_exit(code)}: it must check requests before it uses them"
        if code == 0 and Kind.ERROR not in _kinds_in(received) and not game.address:
            return "it exited with code 0 and without ERROR, as if nothing were wrong"
        return ""

    def _has_wrong_answer(self, received: bytes) -> bool:
        expected = [*[Kind.STEP] * self.num_steps, Kind.ERROR]
        kinds = _kinds_in(received)
        return kinds != expected[: len(kinds)]


def _cases(game: ExternalGame) -> Iterator[_Case]:
    close, huge = _message(Kind.CLOSE), 2**61
    copies = range(_NUM_COPIES)
    reset = _message(Kind.RESET, _words(_NUM_COPIES, *copies, *copies))
    start = {"num_envs": 1, "first_env": 0, "hold": False, "settings": game.values()}
    version = _message(Kind.START, json_payload({"protocol": 99, **start}))
    pieces = [reset[i : i + 7] for i in range(0, len(reset), 7)]
    yield _Case("after CLOSE", [close], is_valid=True)
    yield _Case("after the end of its connection", [], ends=True, is_valid=True)
    yield _Case(
        "after a RESET that arrived in pieces", [*pieces, close], num_steps=1, is_valid=True
    )
    for place, size in (("header", 9), ("payload", 20)):
        what = f"after the end of its connection within a {place}"
        yield _Case(what, [reset[:size]], ends=True)
    yield _Case("after START with protocol 99", [version], has_started=False)
    yield _Case("after START without JSON", [_message(Kind.START, b"{" * 64)], has_started=False)
    yield _Case("after RESET before START", [reset], has_started=False)
    for what, message in (
        ("a message that does not begin with ENE1", b"HTTP" + close[4:]),
        ("a message of the unknown kind 99", _message(99)),
        ("a STEP, which only programs send", _message(Kind.STEP, bytes(16))),
        (f"RESET of copy {_NUM_COPIES}", _message(Kind.RESET, _words(1, _NUM_COPIES, 5))),
        (f"RESET of {huge} copies", _message(Kind.RESET, _words(huge, 0, 5))),
        (f"a header with {huge} bytes of payload", HEADER.pack(MAGIC, Kind.RESET, huge)),
    ):
        yield _Case(f"after {what}", [message])
    yield _Case("after ACT without seeds", [reset, _message(Kind.ACT)], num_steps=1)


def _message(kind: int, payload: bytes = b"") -> bytes:
    return HEADER.pack(MAGIC, kind, len(payload)) + payload


def _words(*numbers: int) -> bytes:
    return np.array(numbers, dtype="<u8").tobytes()


def _kinds_in(data: bytes) -> list[int]:
    """Kinds of the messages in received bytes, up to the first incomplete one."""
    kinds, at = [], 0
    while at + HEADER.size <= len(data):
        _, kind, size = HEADER.unpack_from(data, at)
        kinds.append(kind)
        at += HEADER.size + size
    return kinds
