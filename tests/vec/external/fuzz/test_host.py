"""The host reads or refuses many messages of programs, without much memory, as the protocol says.

A failure names the game, the seed and the frame. NUM_FUZZ_FRAMES sets how many frames are read.
"""

from __future__ import annotations

import json
import os
import resource
import struct
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, get_args

import numpy as np
import pytest

from entity_env.agents import load_agent, random_actions
from entity_env.batching.frame import FrameLayout
from entity_env.core.vec_obs import VecObs
from entity_env.errors import SchemaError, WorkerError
from entity_env.vec import Autoreset, VecEnv
from entity_env.vec.external.frames import Ends, StepMessage, StepParser
from entity_env.vec.external.game import ExternalGame, _again
from entity_env.vec.external.messages import (
    HelloMessage,
    Kind,
    MessageError,
    Place,
    ReadyMessage,
    hello_of,
    json_payload,
    read_json,
    ready_of,
    text_of_error,
)
from entity_env.vec.external.program import Program
from tests.vec.external.fuzz.reference import (
    GAMES,
    Action,
    Generator,
    Invalid,
    Rules,
    decoded,
    packed,
    shown,
)
from tests.vec.external.test_c_fuzz import bad_bytes, bad_json, bad_size, bad_word

NUM_FRAMES = int(os.environ.get("NUM_FUZZ_FRAMES", "50000"))
NUM_QUICK = 50
FLOATS = [struct.pack("<d", x) for x in (1e301, -1e300, float("inf"), float("nan"), 2.0**-1074)]
FLOATS += [struct.pack("<2f", x, -x) for x in (float("inf"), float("nan"), 3e38)]
FLOATS += [
    struct.pack("<Q", x) for x in (0x7FF0000000000001, 0x7F800001FF800001, 0x7F80000000000000)
]
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
    return (
        data[:at]
        + bytes(each ^ 1 << rng.randrange(8) for each in data[at : at + 1])
        + data[at + 1 :]
    )


CHANGES = [near_word, near_word, bad_word, bad_bytes, bad_size, odd_float, moved_words, flipped]


def mutated(rng: Random, data: bytes) -> bytes:
    for _ in range(rng.choice([0, 1, 1, 1, 1, 1, 2, 2, 3])):
        data = rng.choice(CHANGES)(rng, data)
    return data


# ------------------------------------------------------------------ STEP


@contextmanager
def traced(num_bytes: int) -> Iterator[None]:
    """Requires that a call allocates at most in proportion to the bytes that it reads."""
    tracemalloc.start()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
        assert peak <= 2**16 + 64 * num_bytes
    finally:
        tracemalloc.stop()


@pytest.fixture(autouse=True)
def limited() -> Iterator[None]:
    """Limits the memory that is reserved, for the calls that are not traced."""
    figures = Path("/proc/self/statm")
    if not figures.exists():  # not Linux
        yield
        return
    pages = int(figures.read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    most = pages * resource.getpagesize() + 2**28
    resource.setrlimit(resource.RLIMIT_AS, (most, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def parser_of(rules: Rules) -> StepParser:
    ready = ready_of(rules.as_json(), PLACE)
    return StepParser(FrameLayout(*ready.spaces), ready)


def plain_rows(part: StepMessage | Ends) -> dict[str, Any]:
    slots = [None if slot is None else slot.tolist() for slot in part.frame.slots]
    return {
        "scores": shown(part.scores.tolist()),
        "metrics": [shown(line) for line in part.metrics.tolist()],
        "frame": {"lengths": part.frame.lengths.tolist(), "slots": slots},
    }


def plain(step: StepMessage) -> dict[str, Any]:
    """A message as `decoded` returns it."""
    ends = step.ends
    return {
        "copies": step.copies.tolist(),
        "asks": step.asks.tolist(),
        **plain_rows(step),
        "ends": ends
        and {"rows": ends.rows.tolist(), "flags": ends.flags.tolist(), **plain_rows(ends)},
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
            is_traced = i // 8 % 16 == 0  # tracing takes five times the time
            counts[read_step(rules, parser, num_copies, payload, is_traced=is_traced)] += 1
    return counts


def read_step(
    rules: Rules,
    parser: StepParser,
    num_copies: int,
    payload: memoryview,
    *,
    is_traced: bool = True,
) -> str:
    expected = found = error = None
    with suppress(Invalid):
        expected = decoded(rules, num_copies, bytes(payload))
    try:
        with traced(len(payload)) if is_traced else nullcontext():
            found = plain(parser.read(num_copies, payload, PLACE))
    except MessageError as refused:
        error = refused
    if error is not None:
        require_line(error)
    assert found == expected, error
    return "read" if found else "refused"


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
NAMES += [
    "seed",
    "",
    " ",
    "a\nb",
    "\0",
    "\ud800",
    "é",
    "x" * 300,
    "_order_",
    "_missing_",
    "L0",
    "Dot",
    "x0",
    "__global__",
]
VALUES: list[Any] = [None, True, 0, -1, 1, 2**63, 10**400, 0.5, float("inf"), float("nan"), 1e308]
VALUES += [[], {}, [[]], [1], [{}], {"name": "Dot"}, ["L0", "L0"], [["L0"]], *NAMES]


def changed(rng: Random, value: Any) -> Any:  # noqa: ANN401
    """A JSON value with an odd name or value somewhere."""
    if not value or not isinstance(value, dict | list) or rng.random() < 0.15:
        return rng.choice(VALUES)
    made: Any = value.copy()
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
    fields: dict[str, Any] = {
        "command": ("x",),
        "folder": None,
        "link": "unix",
        "address": "",
        "settings": {},
    }
    with suppress(SchemaError):  # which `ExternalGame` turns into a `MessageError`
        _again({**fields, "hello": hello}, ready)


def read_error(data: bytes) -> None:
    message, trace = text_of_error(read_json(data, PLACE))
    (message + trace).encode()


READERS: list[tuple[dict[str, Any], Callable[[bytes], None]]] = [
    (HELLO, read_hello),
    (ERROR, read_error),
]
READERS += [
    ({**rules.as_json(), "max_entities": {}, "checksum": None}, read_ready)
    for rules in GAMES.values()
]


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


# ------------------------------------------------------------------ conversations


class Puppet(Program):
    """A program without a process: answers come from a function of the request's kind and parts."""

    def __init__(
        self, ready: ReadyMessage, answer: Callable[[Kind, Sequence[bytes]], bytes]
    ) -> None:
        self.name, self.num_received, self.is_closed = "puppet", 2, False
        self.ready, self.answer, self._last_kind = ready, answer, "STEP"

    def start(self, *args: object, **options: object) -> ReadyMessage:
        return self.ready

    def request(
        self, kind: Kind, parts: Sequence[Any], timeout_s: float | None = None
    ) -> memoryview:
        self.num_received = 3
        return memoryview(self.answer(kind, parts))

    def close(self) -> None:
        self.is_closed = True

    kill = close


def puppet_game(name: str, answer: Callable[[Kind, Sequence[bytes]], bytes]) -> ExternalGame:
    ready = ready_of(GAMES[name].as_json(), PLACE)
    fields: dict[str, Any] = {
        "command": ("x",),
        "folder": None,
        "link": "unix",
        "address": "",
        "settings": {},
    }
    game = _again({**fields, "hello": HelloMessage("dots", None, {}, "")}, ready)
    make = partial(Puppet, ready, answer)
    vars(game)["start_program"] = make
    vars(game.play)["_start"] = make
    return game


def reset_ended(vec: VecEnv, obs: VecObs) -> VecObs:
    """Resets the environments without a row that waits for an action; most of them have ended."""
    counts = [mask.actors.lengths for mask in obs.action_masks.values()]
    is_idle = (np.sum(counts, axis=0).reshape(3, -1) == 0).all(axis=1)
    return vec.reset_envs(is_idle) if is_idle.any() else obs


def converse(name: str, mode: Autoreset, num_steps: int) -> Counter[str]:
    """Steps a `VecEnv` whose program answers well or not; every error is one of the program's."""
    rng, counts = Random(f"{name} {mode}"), Counter[str]()
    generator = Generator(GAMES[name], rng)

    def answer(kind: Kind, parts: Sequence[bytes]) -> bytes:
        resets = kind is Kind.RESET
        copies = np.frombuffer(parts[1], "<i8").tolist() if resets else range(3)
        data = generator.turn(copies, resets=resets, holds=mode != "same_step")
        return mutated(rng, data) if rng.random() < 0.1 else data

    choices = np.random.default_rng(0)
    with VecEnv(puppet_game(name, answer), 3, autoreset=mode, on_error="restart") as vec:
        obs = None
        for i in range(num_steps):
            try:
                if obs is None or rng.random() < 0.05:
                    obs = vec.reset()
                if mode == "disabled":
                    obs = reset_ended(vec, obs)
                obs = vec.act(random_actions(obs, vec.action_space(), choices))
                counts["steps"] += 1
                counts["episodes"] += len(obs.episodes)
            except (MessageError, WorkerError):
                obs = None
                counts["errors"] += 1
            except BaseException as error:
                error.add_note(f"{name}, {mode}, step {i}")
                raise
    return counts


MODES: tuple[Autoreset, ...] = get_args(Autoreset)


@pytest.mark.slow
@pytest.mark.timeout(60 + NUM_FRAMES / 100)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", GAMES)
def test_conversations_end_or_go_on(name: str, mode: Autoreset) -> None:
    counts = converse(name, mode, NUM_FRAMES // 100)
    assert min(counts["episodes"], counts["errors"]) > counts["steps"] // 100


@pytest.mark.slow
@pytest.mark.timeout(60 + NUM_FRAMES / 100)
@pytest.mark.parametrize("name", GAMES)
def test_single_episodes_end_or_go_on(name: str) -> None:
    rng, counts = Random(name), Counter[str]()
    generator = Generator(GAMES[name], rng)

    def answer(kind: Kind, parts: Sequence[bytes]) -> bytes:
        data = generator.turn([0], resets=kind is Kind.RESET, holds=True)
        return mutated(rng, data) if rng.random() < 0.05 else data

    game = puppet_game(name, answer)
    for seed in range(NUM_FRAMES // 200):
        agents = [load_agent("random", seed=seed) for _ in range(game.num_agents)]
        try:
            game.run(*agents, seed=seed, episodes=1)
            counts["episodes"] += 1
        except (MessageError, WorkerError):
            counts["errors"] += 1
        except BaseException as error:
            error.add_note(f"{name}, seed {seed}")
            raise
    assert min(counts.values()) > counts.total() // 20


# ------------------------------------------------------------------ examples


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"settings": {"class": 1}}, "the name of a setting must be an identifier, not one of"),
        ({"settings": {"agents": 1}}, "the name of a setting must be an identifier, not one of"),
        ({"settings": {"self": 1}}, "the name of a setting must be an identifier, not one of"),
        ({"settings": {"x" * 999 + "-": 1}}, "the name of a setting must be an identifier"),
        ({"settings": {"speed": 1e999}}, "the payload is not JSON in UTF-8: Out of range"),
        ({"version": "a\nb"}, "version must be an integer or a line of 1 to 64 characters"),
        ({"doc": "\ud800"}, "the payload is not JSON in UTF-8: 'utf-8' codec can't encode"),
    ],
)
def test_a_hello_is_refused(change: dict[str, Any], line: str) -> None:
    with pytest.raises(MessageError) as caught:
        read_hello(json.dumps({**HELLO, **change}).encode())
    require_line(caught.value)
    assert line in str(caught.value)


def test_other_encodings_and_numbers_are_refused() -> None:
    with pytest.raises(MessageError, match="the payload is not JSON in UTF-8"):
        read_hello(json.dumps(HELLO).encode("utf-16"))
    with pytest.raises(MessageError, match="the payload is not JSON in UTF-8"):
        read_hello(b"\xef\xbb\xbf" + json.dumps(HELLO).encode())
    with pytest.raises(MessageError, match="the payload is not JSON in UTF-8: Out of range float"):
        read_hello(json.dumps({**HELLO, "settings": {"x": 1}}).replace(": 1}", ": 1e999}").encode())


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"entities": [{"name": f"D{i}", "features": []} for i in range(1001)]}, "more than 1000"),
        ({"entities": [{"name": "Dot", "features": ["\n" * 999] * 2}]}, "entity features must"),
    ],
)
def test_a_ready_is_refused(change: dict[str, Any], line: str) -> None:
    data = GAMES["one"].as_json()
    spaces = data["spaces"]
    assert isinstance(spaces, dict)
    with pytest.raises(MessageError) as caught:
        read_ready(json.dumps({**data, "spaces": {**spaces, **change}}).encode())
    require_line(caught.value)
    assert line in str(caught.value)


def one_step(
    copy: int = 0,
    bare: int = 1,
    metric: float = 0.0,
    ends: Sequence[tuple[int, float, int]] = (),
    text: bytes = b"",
) -> bytes:
    """A `STEP` of one copy with `bare` entities; ends are flags, score and number of entities."""
    flags, scores, counts = zip(*ends, strict=True) if ends else ((), (), ())
    parts = [
        *(struct.pack("<QQ", len(ends), len(text)), packed("B", [copy]), packed("B", [1])),
        *(packed("d", [0.0]), packed("d", [metric])),
        *(packed("B", [0, 0, 1, 0, 0]), packed("q", [bare, 0])),
    ]
    if ends:
        parts += [
            *(packed("q", [0] * len(ends)), packed("q", flags), packed("d", scores)),
            *(packed("d", [0.0] * len(ends)), packed("B", [0, 0, 1, 0, 0])),
            packed("q", [*counts, *[0] * len(ends)]),
        ]
    return b"".join([*parts, text])


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (one_step(), ""),
        (one_step(bare=2**22), ""),
        (one_step(bare=2**22 + 1), "4194305 entities of types without features, expected at most"),
        (one_step(metric=float("nan")), ""),
        (one_step(metric=float("-inf")), "a metric must be NaN or at most 1e+300: got -inf"),
        (one_step(1, ends=[(1, 0.0, 1), (9, 0.0, 1)]), ""),
        (one_step(1, ends=[(9, 0.0, 1), (1, 0.0, 1)]), "of two ends of a row, only the second"),
        (one_step(1, ends=[(1, 0.0, 1), (1, 0.0, 1)]), "of two ends of a row, only the second"),
        (one_step(ends=[(9, 0.0, 1)]), "an episode ended that started in this step, but its copy"),
        (one_step(ends=[(4, float("inf"), 0)]), ""),
        (one_step(ends=[(16, 0.0, 0)]), "the flags of an end must be 1, 2 or 4, or 8 more: got"),
        (one_step(ends=[(4, 0.0, 1)]), "the last observation after a failure must be empty"),
        (one_step(ends=[(4, 0.0, 0)], text=b"[]    "), "the failures must have a multiple of 8"),
        (one_step(text=b" " * (2**24 + 8)), "the failures must have a multiple of 8 bytes, at mo"),
        (one_step(text='[{"row": 0, "message": "ü"}]  '.encode("utf-16-be")[:-4]), "not JSON"),
        (one_step(text=b'[{"row": 0, "message": "\\ud800"}]'.ljust(40)), "not JSON in UTF-8"),
    ],
)
def test_a_step_is_read_or_refused(data: bytes, line: str) -> None:
    rules = Rules({"Bare": 0}, [Action("Move", "categorical", 2)], num_metrics=1)
    data += bytes(-len(data) % 8)
    if not line:
        assert read_step(rules, parser_of(rules), 1, memoryview(data)) == "read"
        return
    with pytest.raises(MessageError) as caught:
        parser_of(rules).read(1, memoryview(data), PLACE)
    require_line(caught.value)
    assert line in str(caught.value)
    with pytest.raises(Invalid):
        decoded(rules, 1, data)
