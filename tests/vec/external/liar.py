"""A program of the protocol with a fault: `python liar.py FAULT`. Needs only the standard library.

Without a fault it plays a game with one entity, `Dot`, and the action `Move`, whose episodes have
three steps.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from typing import BinaryIO

HELLO, START, READY, RESET, ACT, STEP, ERROR, CLOSE = range(1, 9)
SPACES: dict[str, list[dict[str, object]]] = {
    "global_features": [],
    "entities": [{"name": "Dot", "features": ["x"]}],
    "actions": [{"name": "Move", "kind": "categorical", "labels": ["LEFT", "RIGHT"]}],
}
FAULT = sys.argv[1] if len(sys.argv) > 1 else ""
if (
    FAULT == "labels"
):  # no fault: its labels are arguments, and each step's score is the index chosen
    SPACES["actions"][0]["labels"] = sys.argv[2:]
WAITS = -1
"""Length of a copy that waits for a seed."""


def padded(data: bytes, fill: bytes = b"\0") -> bytes:
    return data + fill * (-len(data) % 8)


def message(kind: int, payload: bytes, magic: bytes = b"ENE1") -> bytes:
    return struct.pack("<4sIQ", magic, kind, len(payload)) + payload


def as_json(kind: int, data: object) -> bytes:
    return message(kind, padded(json.dumps(data).encode(), b" "))


def connect() -> socket.socket:
    address = os.environ["ENTITY_ENV_ADDRESS"]
    if address == "stdio":
        return socket.socket(fileno=os.dup(0))
    if address.startswith("tcp:"):
        return socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])))
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(address.removeprefix("unix:"))
    return connection


def frame(counts: list[int], acts: list[int]) -> bytes:
    """`counts` are numbers of entities; one acts in the rows where `acts` is 1."""
    num_actors, num_rows = sum(acts), len(counts)
    x = [float("nan")] * sum(counts) if FAULT == "nan" else [0.5] * sum(counts)
    actors = [0] * num_actors
    has_mask = FAULT.startswith("mask")
    if FAULT == "negative_length":
        counts[0] = -1
    if FAULT == "huge_length":
        counts[0] = 2**62
    if FAULT == "actor_out_of_range":
        actors[0] = 1
    if FAULT == "million":
        counts, x = [1_000_000] * num_rows, [0.25] * (1_000_000 * num_rows)
    present = bytes([1, 2 if FAULT == "slot_flag" else 0, 1, has_mask, 0])
    mask = bytes([0, 0] if FAULT == "mask_empty" else [7, 1]) * num_actors if has_mask else b""
    return b"".join(
        [
            padded(present),
            struct.pack(f"<{num_rows}q", *counts),
            struct.pack(f"<{num_rows}q", *acts),
            padded(struct.pack(f"<{len(x)}f", *x)),
            struct.pack(f"<{num_actors}q", *actors),
            padded(mask),
        ]
    )


def step(num: int, flags: list[int], scores: list[float], ends: list[int]) -> bytes:
    """The answer for copies of one agent; `ends` are rows whose episodes terminated."""
    codes = [5 if FAULT == "end_flag" else 1] * len(ends)
    rows = [num + 3] * len(ends) if FAULT == "end_row" else ends
    score = float("inf") if FAULT == "score" else 1.0
    shows = [int(flag & 2 == 0) for flag in flags]
    asks = [2] * num if FAULT == "asks_flag" else shows
    count = 9**9 if FAULT == "many_ends" else len(ends)
    parts = [
        struct.pack("<QQ", count, 0),
        padded(bytes(flags)),
        padded(bytes(asks)),
        struct.pack(f"<{num}d", *([score] * num if FAULT == "score" else scores)),
        frame(shows.copy(), shows),
    ]
    if ends:
        parts += [
            struct.pack(f"<{len(ends)}q", *rows),
            struct.pack(f"<{len(ends)}q", *codes),
            struct.pack(f"<{len(ends)}d", *([score] * len(ends))),
            frame([1] * len(ends), [int(FAULT == "acts_at_end")] * len(ends)),
        ]
    data = b"".join(parts)
    if FAULT == "short":
        data = data[:-8]
    return data + (bytes(8) if FAULT == "long" else b"")


def main() -> None:
    if FAULT == "never_connects":
        time.sleep(60)
    connection = connect()
    leaves("HELLO", connection)
    if FAULT == "prints":
        connection.sendall(b"Hello from my game\n")
    if FAULT == "big_endian":
        connection.sendall(struct.pack(">4sIQ", b"ENE1", HELLO, 8) + bytes(8))
    hello: dict[str, object] = {"protocol": 99 if FAULT == "version" else 1, "name": "dots"}
    hello["doc"] = "Walk for three steps."
    if FAULT == "name":
        hello["name"] = "../dots"
    if FAULT == "setting":
        hello["settings"] = {"seed": 1}
    if FAULT == "no_json":
        connection.sendall(message(HELLO, b"{'name':'"[:8]))
        time.sleep(60)
    if FAULT == "huge_size":
        connection.sendall(struct.pack("<4sIQ", b"ENE1", HELLO, 2**62))
    connection.sendall(as_json(STEP if FAULT == "kind" else HELLO, hello))
    stream = connection.makefile("rb")
    lengths: list[int] = []
    hold = False
    while (request := read(stream)) is not None:
        kind, payload = request
        leaves(
            {START: "START", RESET: "RESET", ACT: "ACT", CLOSE: "CLOSE"}.get(kind, ""), connection
        )
        if kind == CLOSE:
            break
        if FAULT != "trusts":
            require_valid(kind, payload, lengths)
        if kind == START:
            ready = {"num_agents": 1, "spaces": SPACES}
            if FAULT == "checksum":
                ready["checksum"] = "0" * 16
            if FAULT == "agents":
                ready["num_agents"] = 10**9
            if FAULT == "spaces":
                ready["spaces"] = {**SPACES, "actions": [{"name": "Move", "kind": "jump"}]}
            if FAULT == "no_name":
                select = {"name": "", "kind": "select_entity", "selects": "Dot"}
                ready["spaces"] = {**SPACES, "actions": [select]}
            if FAULT == "selects_actor":
                select = {"name": "Move", "kind": "select_entity", "selects": "__actor__"}
                hidden = {"name": "__actor__", "features": []}
                ready["spaces"] = {**SPACES, "entities": [hidden], "actions": [select]}
            if FAULT == "actor":
                ready["spaces"] = {**SPACES, "entities": [{"name": "__actor__", "features": ["x"]}]}
            if FAULT == "error":
                connection.sendall(as_json(ERROR, {"message": "no level 7", "traceback": "here"}))
                return
            connection.sendall(as_json(READY, ready))
            start = json.loads(payload)
            lengths, hold = [0] * start["num_envs"], start["hold"]
        elif kind == RESET:
            [count] = struct.unpack_from("<Q", payload)
            if FAULT == "crashes" and len(payload) != 8 + 16 * count:
                os.kill(os.getpid(), signal.SIGSEGV)
            for i in struct.unpack_from(f"<{count}q", payload, 8):
                lengths[i % len(lengths)] = 0
            if FAULT == "shares":
                lengths[:] = [0] * len(lengths)
            flags = [0 if FAULT == "not_started" else 1] * count
            connection.sendall(message(STEP, step(count, flags, [0.0] * count, [])))
        else:
            act(connection, payload, lengths, hold)
    if FAULT == "stays":
        time.sleep(60)
    if FAULT == "exit_code":
        sys.exit(3)


def leaves(place: str, connection: socket.socket) -> None:
    """Exits in place of an answer, while a child process keeps the connection open."""
    if f"leaves_{place}" == FAULT:
        subprocess.Popen(["sleep", "500"], pass_fds=[connection.fileno()])
        os._exit(3)


def read(stream: BinaryIO) -> tuple[int, bytes] | None:
    """The next request, or None at the end."""
    header = stream.read(16)
    if not header:
        return None
    magic, kind, size = struct.unpack("<4sIQ", header.ljust(16, b"\0"))
    if FAULT not in ("trusts", "crashes"):
        assert (len(header), magic, size <= 2**28) == (16, b"ENE1", True)
    payload = stream.read(min(size, 2**28))
    assert len(payload) == size or FAULT == "trusts"
    return kind, payload


def require_valid(kind: int, payload: bytes, lengths: list[int]) -> None:
    assert kind in ((RESET, ACT) if lengths else (START,)), "not due"
    if kind == START:
        assert json.loads(payload)["protocol"] == 1
    if kind == RESET and FAULT != "crashes":
        [count] = struct.unpack_from("<Q", payload)
        assert len(payload) == 8 + 16 * count
        assert all(0 <= i < len(lengths) for i in struct.unpack_from(f"<{count}q", payload, 8))
    if kind == ACT:
        assert len(payload) >= 8 * len(lengths)


def act(connection: socket.socket, payload: bytes, lengths: list[int], hold: bool) -> None:
    num = len(lengths)
    ends = [i for i, length in enumerate(lengths) if length == 2]
    flags = [int(length == WAITS) for length in lengths]
    for i in ends:
        flags[i] = 2 if hold else 1
    lengths[:] = [(length + 1) % 3 for length in lengths]
    for i in ends if hold else []:
        lengths[i] = WAITS
    if FAULT == "exits" and ends:
        sys.exit(3)
    if FAULT == "killed" and ends:
        os.kill(os.getpid(), signal.SIGKILL)
    if FAULT == "hangs" and ends:
        time.sleep(60)
    if FAULT == "flags_of_copy":
        flags[0] = 4
    if FAULT == "silent_end":
        ends = []
    chosen = struct.unpack_from(f"<{num}q", payload, 8 * num) if FAULT == "labels" else lengths
    data = message(STEP, step(num, flags, [float(score) for score in chosen], ends))
    if FAULT == "half" and ends:
        connection.sendall(data[: len(data) // 2])
        time.sleep(60)
    if FAULT == "twice":
        data += data
    connection.sendall(data)


if __name__ == "__main__":
    main()
