"""The host reads or refuses many messages of programs, without much memory, as the protocol says.

A failure names the game, the seed and the frame. NUM_FUZZ_FRAMES sets how many frames are read.
"""

from __future__ import annotations

import json
import os
import struct
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from random import Random
from typing import Any

import pytest

from entity_env.batching.frame import Frame, FrameLayout
from entity_env.errors import SchemaError
from entity_env.vec.external.frames import StepMessage, StepParser
from entity_env.vec.external.game import _again
from entity_env.vec.external.messages import (
    HEADER,
    MAGIC,
    HelloMessage,
    Kind,
    MessageError,
    Place,
    ReadyMessage,
    hello_of,
    json_payload,
    read_json,
    ready_of,
    size_of,
    text_of_error,
)
from tests.vec.external.fuzz.reference import GAMES, Generator, Invalid, Rules, decoded, shown
from tests.vec.external.test_c_fuzz import ODD_WORDS, bad_bytes, bad_json, bad_size, bad_word

NUM_FRAMES = int(os.environ.get("NUM_FUZZ_FRAMES", "50000"))
NUM_QUICK = 80
FLOATS = [struct.pack("<d", x) for x in (1e301, -1e300, float("inf"), float("nan"), 2.0**-1074)]
FLOATS += [struct.pack("<2f", x, -x) for x in (float("inf"), float("nan"), 3e38)]
FLOATS += [struct.pack("<Q", x) for x in (0x7FF0000000000001, 0x7F800001FF800001, 0x7F80000000000000)]
PLACE = Place(3, "STEP")


# ------------------------------------------------------------------ mutations


def near_word(rng: Random, data: bytes) -> bytes:
    """Another length, index or flag that is almost right."""
    if len(data) < 8:
        return data
    at = rng.randrange(0, len(data), 8)
    [word] = struct.unpack_from("<Q", data, at)
    word = rng.choice([word + 1, word - 1, rng.randrange(9), word ^ 1 << rng.randrange(64)])
    return data[:at] + struct.pack("<Q", word % 2**64) + data[at + 8 :]


def odd_float(rng: Random, data: bytes) -> bytes:
    at = rng.randrange(0, max(len(data), 8), 8)
    return data[:at] + rng.choice(FLOATS) + data[at + 8 :]


def moved_words(rng: Random, data: bytes) -> bytes:
    """Words of the payload are left out, repeated or copied to another place."""
    begin, end, to = (8 * rng.randint(0, len(data) // 8) for _ in range(3))
    begin, end = min(begin, end), max(begin, end)
    part = data[begin:end]
    return rng.choice([data[:begin] + data[end:], data[:to] + part + data[to:]])


def flipped(rng: Random, data: bytes) -> bytes:
    at = rng.randrange(max(len(data), 1))
    return data[:at] + bytes(each ^ 1 << rng.randrange(8) for each in data[at : at + 1]) + data[at + 1 :]


CHANGES = [near_word, near_word, bad_word, bad_bytes, bad_size, odd_float, moved_words, flipped]


def mutated(rng: Random, data: bytes) -> bytes:
    for _ in range(rng.choice([0, 1, 1, 1, 1, 1, 2, 2, 3])):
        data = rng.choice(CHANGES)(rng, data)
    return data


# ------------------------------------------------------------------ STEP


class Bound:
    """Requires that a call allocates at most in proportion to the bytes that it reads."""

    def __init__(self, num_bytes: int) -> None:
        self.most = 2**16 + 64 * num_bytes

    def __enter__(self) -> None:
        tracemalloc.reset_peak()
        self.before, _ = tracemalloc.get_traced_memory()

    def __exit__(self, *error: object) -> None:
        _, peak = tracemalloc.get_traced_memory()
        assert peak - self.before <= self.most, f"{peak - self.before} bytes, at most {self.most}"


@pytest.fixture(autouse=True)
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


def parser_of(rules: Rules) -> StepParser:
    ready = ready_of(rules.as_json(), PLACE)
    return StepParser(FrameLayout(*ready.spaces), ready)


def plain_frame(frame: Frame) -> dict[str, Any]:
    slots = [None if slot is None else slot.tolist() for slot in frame.slots]
    return {"lengths": frame.lengths.tolist(), "slots": slots}


def plain(step: StepMessage) -> dict[str, Any]:
    """A message as `decoded` returns it."""
    ends = step.ends
    return {
        "copies": step.copies.tolist(),
        "asks": step.asks.tolist(),
        "scores": shown(step.scores.tolist()),
        "metrics": [shown(line) for line in step.metrics.tolist()],
        "frame": plain_frame(step.frame),
        "ends": ends
        and {
            "rows": ends.rows.tolist(),
            "flags": ends.flags.tolist(),
            "scores": shown(ends.scores.tolist()),
            "metrics": [shown(line) for line in ends.metrics.tolist()],
            "frame": plain_frame(ends.frame),
        },
        "failures": dict(step.failures),
    }


def require_line(error: MessageError) -> None:
    assert type(error) is MessageError
    text = str(error)
    assert text.startswith("message 3 (")
    assert "\n" not in text
    assert len(text) < 400


@contextmanager
def noted(name: str, frame: int, data: bytes) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        error.add_note(f"game {name}, frame {frame}: {data.hex()}")
        raise


def read_steps(name: str, num_frames: int) -> Counter[str]:
    """Reads frames in two alternating buffers, like a `Program`; counts those read and refused."""
    rules, rng = GAMES[name], Random(f"{name} {num_frames}")
    parser, generator = parser_of(rules), Generator(rules, rng)
    buffers, counts = (bytearray(2**16), bytearray(2**16)), Counter[str]()
    for i in range(num_frames):
        if i % 8 == 0:  # equal lengths several times: the parser then repeats its views
            num_copies = rng.randint(1, 4)
            valid = generator.step(num_copies)
        data = mutated(rng, valid)
        buffer = buffers[i % 2]
        buffer[16 : 16 + len(data)] = data
        payload = memoryview(buffer)[16 : 16 + len(data)]
        with noted(name, i, data):
            counts[read_step(rules, parser, num_copies, payload)] += 1
    return counts


def read_step(rules: Rules, parser: StepParser, num_copies: int, payload: memoryview) -> str:
    expected = found = None
    with suppress(Invalid):
        expected = decoded(rules, num_copies, bytes(payload))
    try:
        with Bound(len(payload)):
            found = parser.read(num_copies, payload, PLACE)
    except MessageError as error:
        require_line(error)
        assert expected is None, error
        return "refused"
    assert plain(found) == expected
    return "read"


@pytest.mark.parametrize("name", GAMES)
def test_some_steps_are_read_or_refused(name: str) -> None:
    read_steps(name, NUM_QUICK)


@pytest.mark.slow
@pytest.mark.timeout(60 + NUM_FRAMES / 100)
@pytest.mark.parametrize("name", GAMES)
def test_every_step_is_read_or_refused(name: str) -> None:
    counts = read_steps(name, NUM_FRAMES // len(GAMES))
    assert min(counts["read"], counts["refused"]) > counts.total() // 10


# ------------------------------------------------------------------ HELLO, READY and ERROR

HELLO = {
    "protocol": 1,
    "name": "dots",
    "version": 3,
    "token": "",
    "doc": "Rules.",
    "settings": {"size": 3, "speed": 0.5, "fast": False, "level": "a"},
}
ERROR = {"message": "no level", "traceback": "here"}
NAMES = ["__dict__", "__class__", "__slots__", "mro", "_value_", "name", "class", "self", "agents"]
NAMES += ["seed", "", " ", "a\nb", "\0", "\ud800", "é", "x" * 300, "_order_", "_missing_", "L0", "Dot", "x0", "__global__"]
VALUES: list[Any] = [None, True, 0, -1, 1, 2**63, 10**400, 0.5, float("inf"), float("nan"), 1e308]
VALUES += [[], {}, [[]], [1], [{}], {"name": "Dot"}, ["L0", "L0"], [["L0"]], *NAMES]


def changed(rng: Random, value: Any) -> Any:  # noqa: ANN401
    """A JSON value with an odd name or value somewhere."""
    if not value or not isinstance(value, dict | list) or rng.random() < 0.15:
        return rng.choice(VALUES)
    made = value.copy()
    key = rng.choice(list(made) if isinstance(made, dict) else range(len(made)))
    match rng.randrange(8):
        case 0:
            del made[key]
        case 1 if isinstance(made, dict):
            made[rng.choice(NAMES)] = made[key]
        case 1:
            made.append(made[key])
        case _:
            made[key] = changed(rng, made[key])
    return made


def json_message(rng: Random, valid: dict[str, Any]) -> bytes:
    value: Any = valid
    for _ in range(rng.randint(0, 2)):
        value = changed(rng, value)
    text = json.dumps(value, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")
    data = text.ljust(len(text) + -len(text) % 8)
    if rng.random() < 0.2 and data.isascii():
        return bad_json(rng, data)
    return mutated(rng, data) if rng.random() < 0.2 else data


def read_hello(data: bytes) -> None:
    hello = hello_of(read_json(data, PLACE), "", PLACE)
    given = json.loads(data.decode())
    assert hello == HelloMessage(
        given["name"], given.get("version"), given.get("settings", {}), given.get("doc", "")
    )
    json_payload({"settings": hello.settings})
    describe(hello, ready_of(GAMES["one"].as_json(), PLACE))


def read_ready(data: bytes) -> None:
    ready = ready_of(read_json(data, PLACE), PLACE)
    given = json.loads(data.decode())
    assert ready.num_agents == given["num_agents"]
    assert [*ready.metrics] == given.get("metrics", [])
    assert [*ready.spaces[1]] == [each["name"] for each in given["spaces"]["actions"]]
    assert {n: [*e.features] for n, e in ready.spaces[0].entities.items()} == {
        each["name"]: each["features"] for each in given["spaces"]["entities"]
    }
    describe(HelloMessage("dots", None, {}, ""), ready)


def describe(hello: HelloMessage, ready: ReadyMessage) -> None:
    """Makes the classes of a game."""
    fields = {"command": ("x",), "folder": None, "link": "unix", "address": "", "settings": {}}
    with suppress(SchemaError):  # which `ExternalGame` turns into a `MessageError`
        _again({**fields, "hello": hello}, ready)


def read_error(data: bytes) -> None:
    message, trace = text_of_error(read_json(data, PLACE))
    (message + trace).encode()


READERS: list[tuple[dict[str, Any], Callable[[bytes], None]]] = [(HELLO, read_hello), (ERROR, read_error)]
READERS += [({**rules.as_json(), "max_entities": {}, "checksum": None}, read_ready) for rules in GAMES.values()]


def read_json_messages(num_frames: int) -> Counter[str]:
    rng, counts = Random(num_frames), Counter[str]()
    for i in range(num_frames):
        valid, reader = rng.choice(READERS)
        data = json_message(rng, valid)
        with noted(reader.__name__, i, data):
            try:
                reader(data)
                counts[f"{reader.__name__} accepts"] += 1
            except MessageError as error:
                require_line(error)
                counts[f"{reader.__name__} refuses"] += 1
    return counts


def test_some_descriptions_are_read_or_refused() -> None:
    read_json_messages(NUM_QUICK)


@pytest.mark.slow
@pytest.mark.timeout(60 + NUM_FRAMES / 100)
def test_every_description_is_read_or_refused() -> None:
    counts = read_json_messages(NUM_FRAMES // 10)
    assert len(counts) == 6
    assert min(counts.values()) > counts.total() // 200
