"""Random bytes in place of messages arrive over every kind of connection; the host stays up."""

from __future__ import annotations

import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from time import sleep
from typing import get_args

import pytest

from entity_env.errors import WorkerError
from entity_env.vec.external import program as program_module
from entity_env.vec.external.messages import HEADER, MAGIC, Kind, MessageError, json_payload
from entity_env.vec.external.program import Link, Program
from tests.vec.external.fuzz.reference import GAMES, Generator, decoded
from tests.vec.external.fuzz.test_host import NUM_FRAMES, json_message, mutated, parser_of, plain
from tests.vec.external.test_c_fuzz import ODD_WORDS

pytestmark = pytest.mark.slow
NUM_CONVERSATIONS = min(NUM_FRAMES // 250, 2000)
NUM_COPIES = 2
HELLO = {"protocol": 1, "name": "dots"}


def as_bytes(rng: Random, kind: int, payload: bytes) -> bytes:
    """A message, whose header may be wrong."""
    magic, size = MAGIC, len(payload)
    match rng.randrange(40):
        case 0:
            magic = rng.choice([b"1ENE", b"Hell", bytes(4)])
        case 1:
            kind = rng.choice([0, *range(1, 10), 2**32 - 1])
        case 2:
            size = rng.choice([*ODD_WORDS, size - 8, size + 8]) % 2**64
        case 3:
            return b""
        case 4:
            payload *= 2
    data = HEADER.pack(magic, kind, size) + payload
    return data[: rng.randrange(len(data))] if rng.random() < 0.02 else data


def conversation(rng: Random, generator: Generator) -> list[bytes]:
    """What a program sends: an answer to each request."""
    ready = generator.rules.as_json()
    steps = [generator.turn(range(NUM_COPIES), resets=i == 0, holds=False) for i in range(6)]
    messages = [
        (Kind.HELLO, json_message(rng, HELLO) if rng.random() < 0.1 else json_payload(HELLO)),
        (Kind.READY, json_message(rng, ready) if rng.random() < 0.1 else json_payload(ready)),
        *((Kind.STEP, mutated(rng, each) if rng.random() < 0.2 else each) for each in steps),
    ]
    if rng.random() < 0.1:
        messages[rng.randrange(8)] = (Kind.ERROR, json_message(rng, {"message": "no level"}))
    if rng.random() < 0.1:
        rng.shuffle(messages)
    return [as_bytes(rng, kind, payload) for kind, payload in messages]


def serve(connect: Callable[[], socket.socket], messages: Sequence[bytes], pieces: Random) -> None:
    """Sends the messages in pieces, each after a request; ends if none comes."""
    with connect() as connection, suppress(OSError, struct.error):
        connection.settimeout(0.1)
        for data in messages:
            cut = pieces.choice([0, pieces.randint(0, len(data))])
            connection.sendall(data[:cut])
            connection.sendall(data[cut:])
            *_, size = HEADER.unpack(connection.recv(HEADER.size, socket.MSG_WAITALL))
            if size:
                connection.recv(size, socket.MSG_WAITALL)


def connected(address: str) -> socket.socket:
    """The connection to a host that may not listen yet."""
    kind, _, place = address.partition(":")
    for _ in range(10_000):
        made = socket.socket(socket.AF_INET if kind == "tcp" else socket.AF_UNIX)
        try:
            made.connect(("127.0.0.1", int(place.rpartition(":")[2])) if kind == "tcp" else place)
        except OSError:
            made.close()
            sleep(0.001)
        else:
            return made
    raise TimeoutError(address)


def play(program: Program, name: str) -> int:
    """Plays until the conversation ends; returns the number of steps."""
    rules = GAMES[name]
    parser = parser_of(rules)
    ready = program.start(NUM_COPIES, {}, timeout_s=10)
    if ready.spaces[1].keys() != {action.name for action in rules.actions}:
        return 0  # another game
    for i in range(6):
        kind = Kind.ACT if i else Kind.RESET
        payload = program.request(kind, [bytes(16)], 10)
        step = program.read(payload, partial(parser.read, NUM_COPIES))
        assert plain(step) == decoded(rules, NUM_COPIES, bytes(payload))
    return 6


@pytest.mark.timeout(60 + NUM_CONVERSATIONS)
@pytest.mark.parametrize("link", get_args(Link))
def test_a_liar_is_read_or_refused(
    link: Link, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    address = f"tcp:127.0.0.1:{port}" if link == "tcp" else f"unix:{tmp_path}/s"
    counts = Counter[str]()
    for i in range(NUM_CONVERSATIONS):
        rng, name = Random(f"{link} {i}"), [*GAMES][i % len(GAMES)]
        connect = partial(connected, address)
        if link == "stdio":
            ours, theirs = socket.socketpair()
            connect = partial(socket.socket, fileno=theirs.detach())
            monkeypatch.setattr(program_module, "_awaited", lambda _, ours=ours: ours)
        messages = conversation(rng, Generator(GAMES[name], rng))
        thread = threading.Thread(target=serve, args=(connect, messages, rng))
        thread.start()
        try:
            program = Program((), address=address, timeout_s=10)
            counts["played"] += play(program, name) == 6
            program.close()
        except (MessageError, WorkerError) as error:
            counts[type(error).__name__] += 1
        except BaseException as error:
            error.add_note(f"{link}, conversation {i}")
            raise
        finally:
            thread.join()
    assert min(counts.values()) > NUM_CONVERSATIONS // 20
    assert len(counts) == 3
