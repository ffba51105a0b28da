"""Programs in C refuse messages that a host must not send: no sanitizer reports anything."""

from __future__ import annotations

import os
import struct
import subprocess
from collections.abc import Sequence
from random import Random
from typing import Final

import numpy as np
import pytest

from entity_env.agents import random_actions
from entity_env.vec import VecEnv
from entity_env.vec.external.game import ExternalGame
from entity_env.vec.external.messages import HEADER, MAGIC, Kind
from entity_env.vec.external.program import Program
from tests.vec.external.test_c import Compile, odd, program, pytestmark, sanitized
from tests.vec.external.twins import GAMES

__all__ = ["program", "pytestmark", "sanitized"]

Message = tuple[int, bytes]
REPORT = 99
"""Exit code of a program after a report of a sanitizer."""
OPTIONS = {
    "ASAN_OPTIONS": f"exitcode={REPORT}:detect_leaks=0:max_allocation_size_mb=64:"
    "detect_stack_use_after_return=0:hard_rss_limit_mb=512",
    "UBSAN_OPTIONS": f"exitcode={REPORT}:print_stacktrace=1",
    "ENTITY_ENV_ADDRESS": "stdio",
    "ENTITY_ENV_TOKEN": "",
}
NUM_CASES = int(os.environ.get("NUM_FUZZ_CASES", "60"))
ODD_WORDS = [0, 1, 2, 7, 2**31 - 1, 2**31, 2**32, 2**62, 2**63 - 1, 2**63, 2**64 - 1]
ODD_WORDS += [0x7FF8000000000000, 0x7FC000007F800000, 256 << 20, (256 << 20) + 8]
ODD_JSON = ["-1", "0", "1e999", "-1e999", "1.5", "1e9", "16777216", "99999999999999999999", "nan"]
ODD_JSON += ["null", "true", '"x"', '"\\', "[[[[", "{}", "{" * 5000, "\0", "\xff", '"' * 999, ""]


def recorded(game: ExternalGame, monkeypatch: pytest.MonkeyPatch) -> list[Message]:
    """The messages of a host that plays a few steps and resets some copies."""
    found: list[Message] = []
    send = Program._send

    def keep(
        self: Program, kind: Kind, parts: Sequence[bytes | memoryview], deadline: float
    ) -> None:
        found.append((int(kind), b"".join(map(bytes, parts))))
        send(self, kind, parts, deadline)

    with monkeypatch.context() as patch:
        patch.setattr(Program, "_send", keep)
        with VecEnv(game, 3, seed=1) as vec:
            rng = np.random.default_rng(0)
            obs = vec.reset()
            for step in range(8):
                if step % 3 == 2:
                    obs = vec.reset_envs(np.array([step % 2 == 0, False, True]))
                obs = vec.act(random_actions(obs, vec.action_space(), rng))
    start = max(i for i, (kind, _) in enumerate(found) if kind == Kind.START)
    return found[start:]


def packed(messages: Sequence[Message]) -> bytes:
    return b"".join(HEADER.pack(MAGIC, kind, len(data)) + data for kind, data in messages)


def answered(words: Sequence[str], data: bytes) -> subprocess.CompletedProcess[bytes]:
    """Runs a program that reads these bytes; fails after a report or without an end."""
    done = subprocess.run(
        words, input=data, capture_output=True, env={**os.environ, **OPTIONS}, timeout=30
    )
    assert done.returncode in (0, 1), done.stderr.decode(errors="replace")
    kinds, at = [], 0
    while at < len(done.stdout):
        magic, kind, size = HEADER.unpack_from(done.stdout, at)
        assert magic == MAGIC
        kinds.append(kind)
        at += HEADER.size + size
    assert at == len(done.stdout)
    assert (kinds[-1] == Kind.ERROR) == (done.returncode == 1)
    return done


def bad_word(rng: Random, data: bytes) -> bytes:
    at = rng.randrange(0, max(len(data), 8), 8)
    return data[:at] + struct.pack("<Q", rng.choice(ODD_WORDS)) + data[at + 8 :]


def bad_bytes(rng: Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.randint(1, 4) if data else 0):
        changed[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(changed)


def bad_size(rng: Random, data: bytes) -> bytes:
    if rng.random() < 0.5:
        return data[: rng.randrange(0, len(data) + 8, 8)]
    return data + rng.randbytes(8 * rng.randint(1, 9))


def bad_json(rng: Random, data: bytes) -> bytes:
    text = data.decode().strip()
    places = [i for i, each in enumerate(text) if each in ',:{}"']
    at = rng.choice(places or [0]) + rng.randint(0, 1)
    end = rng.choice([at, at, min([i for i in places if i > at] or [at]), len(text)])
    changed = (text[:at] + rng.choice(ODD_JSON) + text[end:]).encode("latin-1")
    return changed.ljust(-len(changed) % 8 + len(changed))


def mutated(rng: Random, messages: Sequence[Message]) -> bytes:
    """The messages, with an error in one of them."""
    chosen = rng.randrange(len(messages))
    if rng.random() < 0.25:
        chosen = 0
    kind, data = messages[chosen]
    before, after = packed(messages[:chosen]), packed(messages[chosen + 1 :])
    changes = [bad_word, bad_bytes, bad_size]
    if kind == Kind.START:
        changes = [bad_json] * 5 + changes
    match rng.randrange(12):
        case 0:  # another kind
            changed = packed([(rng.choice([0, *range(1, 10), 2**32 - 1]), data)])
        case 1:  # another size
            size = rng.choice([*ODD_WORDS, len(data) + 8, len(data) - 8, 8 * rng.randrange(99)])
            changed = HEADER.pack(MAGIC, kind, size % 2**64) + data
        case 2:  # left out, or sent again
            changed = packed([messages[chosen]] * rng.choice([0, 2]))
        case 3:  # the connection ends within the message
            return before + packed([(kind, data)])[: rng.randrange(16 + len(data))]
        case 4:  # other first bytes
            changed = rng.randbytes(4) + packed([(kind, data)])[4:]
        case _:
            changed = packed([(kind, rng.choice(changes)(rng, data))])
    return before + changed + after


@pytest.mark.parametrize("name", [*GAMES, "kinds", "roads"])
def test_mutated_messages(name: str, sanitized: Compile, monkeypatch: pytest.MonkeyPatch) -> None:
    path = sanitized(name if name in GAMES else "odd_games")
    words = [str(path), name]
    messages = recorded(odd(path, name), monkeypatch)
    assert answered(words, packed(messages)).returncode == 0
    num_refused = 0
    for seed in range(NUM_CASES):
        data = mutated(Random(f"{name} {seed}"), messages)
        try:
            num_refused += answered(words, data).returncode
        except BaseException as error:
            error.add_note(f"case {seed}")
            raise
    assert num_refused > NUM_CASES // 3


def start_with(num_envs: int) -> Message:
    text = f'{{"protocol": 1, "num_envs": {num_envs}, "hold": false, "settings": {{}}}}'
    return Kind.START, text.encode().ljust(-len(text) % 8 + len(text))


@pytest.mark.parametrize("num_envs", [10**6, 16_777_216, 2**31 - 1, 10**30])
def test_it_reserves_no_memory_for_copies_that_nobody_names(
    num_envs: int, sanitized: Compile
) -> None:
    reset = struct.pack("<QqQ", 1, 0, 5)
    messages = [start_with(num_envs), (Kind.RESET, reset)]
    assert answered([str(sanitized("snake"))], packed(messages)).returncode == 1


def test_it_reserves_no_memory_for_bytes_that_do_not_arrive(sanitized: Compile) -> None:
    begun = HEADER.pack(MAGIC, Kind.RESET, 256 << 20) + bytes(64)
    words = [str(sanitized("snake"))]
    assert answered(words, packed([start_with(4)]) + begun).returncode == 1


REFUSED: Final = [
    (Kind.RESET, struct.pack("<Q2q2Q", 2, 1, 0, 5, 5), b"must exist and increase"),
    (Kind.RESET, struct.pack("<Q2q2Q", 2, 0, 0, 5, 5), b"must exist and increase"),
    (Kind.RESET, struct.pack("<QqQ", 1, 2, 5), b"must exist and increase"),
    (Kind.RESET, struct.pack("<Q", 0), b"does not match the number of copies"),
    (Kind.ACT, struct.pack("<2Q", 5, 5), b"too few actions"),
    (Kind.ACT, struct.pack("<2Q3q", 5, 5, 0, 0, 0), b"does not match the actors"),
    (Kind.ACT, struct.pack("<2Q2q", 5, 5, 0, 4), b"a choice is out of range"),
    (Kind.ACT, struct.pack("<2Q2q", 5, 5, -1, 0), b"a choice is out of range"),
    (Kind.ACT, b"", b"too few seeds"),
    (Kind.START, b"{}      ", b"not due"),
    (Kind.STEP, b"", b"not due"),
]
"""Kind, payload and reason of requests that snake refuses after a RESET of two copies."""


@pytest.mark.parametrize(("kind", "data", "reason"), REFUSED)
def test_it_says_what_it_refuses(kind: Kind, data: bytes, reason: bytes, program: Compile) -> None:
    reset = Kind.RESET, struct.pack("<Q2q2Q", 2, 0, 1, 5, 5)
    done = answered([str(program("snake"))], packed([start_with(2), reset, (kind, data)]))
    assert done.returncode == 1
    assert reason in done.stdout
    assert reason in done.stderr


def test_a_masked_choice_is_refused(program: Compile) -> None:
    reset = Kind.RESET, struct.pack("<QqQ", 1, 0, 5)
    act = Kind.ACT, struct.pack("<Qq", 5, 4)
    data = packed([start_with(1), reset, act, act])
    assert b"a choice is not allowed" in answered([str(program("tic_tac_toe"))], data).stdout


def test_it_exits_with_its_host(program: Compile) -> None:
    """A host that is killed closes the connection without CLOSE."""
    done = answered([str(program("snake"))], packed([start_with(4)]))
    assert done.returncode == 0
