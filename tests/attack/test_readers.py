"""Mutated files: readers accept them or raise their own error, within memory and time limits."""

import copy
import gzip
import hashlib
import io
import json
import re
import struct
import traceback
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from tests.attack.budget import Attack
from tests.helpers.readers import READERS, begin_reading, limits

Mutate = Callable[[Random, bytes], bytes]
Path_ = tuple[Any, ...]

ODD: tuple[Any, ...] = (
    *(None, True, False, -1, 0, 1, 2, 3, 0.5, -0.0, 1e-320, 1e308),
    *(float("inf"), float("-inf"), float("nan"), 8, 100, 1000, 10**6, 10**9, 10**12),
    *(2**31 - 1, 2**31, 2**53, 2**63, 2**64, -(2**63), 10**400, 10**4000),
    *("", "x", "\0", "\ud800", "é", "None", "1e999", "1e99999999", "../../etc/passwd", "a" * 5000),
    *([], {}, [[]], [1, 2], [None] * 3, {"a": 1}, [0] * 300),
)
NAMES = ("x", "", "\0", "n_layer", "name", "kind", "step", "__metadata__")
RON = [
    *(b"None", b"true", b"-1", b"0", b"0.5", b"1000000", b"2147483648", b"1000000000000"),
    *(b"9" * 300, b"9" * 500, b"1e999", b"NaN", b"inf", b'""', b'"x"', rb'"\u{d800}"'),
    *(b"()", b"{}", b"[]", b"X()", b"Some(1)", b"(", b")", b"[", b"]", b",", b"99"),
]
TOKEN = re.compile(rb"[A-Za-z_][A-Za-z0-9_]*|-?[0-9.]+|\"[^\"]*\"|[(){}\[\]:,]")
ODD_INTS = (0, 1, -1, 3, 10**6, 2**31, 2**40, 2**62, 2**63 - 1, -(2**63))
ODD_FLOATS = (0.5, -1e-45, 3e38, -3e38, float("inf"), float("nan"))
SIZES = (0, 1, 2**31, 2**40, 2**62, 2**64 - 1)


def bytes_of(rng: Random, data: bytes) -> bytes:
    """Flips, overwrites, removes, inserts and repeats bytes."""
    b = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        if not b:
            break
        i, j, n = rng.randrange(len(b)), rng.randrange(len(b)), rng.randrange(1, 64)
        match rng.randrange(8):
            case 0:
                b[i] ^= 1 << rng.randrange(8)
            case 1:
                b[i] = rng.randrange(256)
            case 2:
                del b[i : i + n]
            case 3:
                b[i:i] = rng.randbytes(n)
            case 4:
                b[i:i] = b[i : i + 3 * n]
            case 5:
                b[i : i + 8] = struct.pack("<Q", rng.choice((*SIZES, len(b))))
            case 6:
                del b[i:]
            case _:
                b[i : i + n] = b[j : j + n]
    return bytes(b)


def places(value: object, path: Path_ = ()) -> Iterator[Path_]:
    yield path
    if isinstance(value, dict):
        for key in value:
            yield from places(value[key], (*path, key))
    elif isinstance(value, list):
        for i in range(len(value)):
            yield from places(value[i], (*path, i))


def value_of(rng: Random, value: Any) -> Any:  # noqa: ANN401 - any JSON
    """Replaces, removes, repeats and renames parts of JSON."""
    value = copy.deepcopy(value)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        path = rng.choice(list(places(value)))
        if not path:
            continue
        owner = value
        for key in path[:-1]:
            owner = owner[key]
        last, old = path[-1], owner[path[-1]]
        match rng.randrange(6):
            case 0 | 1 | 2:
                owner[last] = copy.deepcopy(rng.choice(ODD))
            case 3:
                del owner[last]
            case 4 if isinstance(owner, list):
                owner.insert(last, copy.deepcopy(rng.choice(owner)))
            case 4:
                owner[rng.choice(NAMES)] = old
            case _ if type(old) is int:
                owner[last] = old + rng.choice((-1, 1, 10**6, -2 * old, 1000 * old))
            case _ if isinstance(old, str):
                owner[last] = old + rng.choice(("\0", " ", "x", "é"))
            case _ if isinstance(old, list):
                rng.shuffle(old)
    return value


def text_of(value: object) -> bytes:
    return json.dumps(value).encode("utf-8", "surrogatepass")


def json_of(rng: Random, data: bytes) -> bytes:
    return text_of(value_of(rng, json.loads(data)))


def lines_of(rng: Random, data: bytes) -> bytes:
    return b"\n".join(json_of(rng, line) for line in data.splitlines()) + b"\n"


def ron_of(rng: Random, data: bytes) -> bytes:
    """Replaces, removes and moves tokens."""
    for _ in range(rng.choice((1, 1, 2, 3))):
        tokens = [match.span() for match in TOKEN.finditer(data)]
        if not tokens:
            return data
        (start, end), (other, stop) = rng.choice(tokens), rng.choice(tokens)
        new = rng.choice((rng.choice(RON), b"", data[other:stop]))
        data = data[:start] + new + data[end:]
    return data


def safetensors_of(rng: Random, data: bytes) -> bytes:
    """Replaces the header, with the right length."""
    length = int.from_bytes(data[:8], "little")
    header = json_of(rng, data[8 : 8 + length])
    return len(header).to_bytes(8, "little") + header + data[8 + length :]


def agent_of(rng: Random, data: bytes) -> bytes:
    """Replaces the body, with the right checksum."""
    body = data[52:]
    length = int.from_bytes(body[:8], "little")
    text, tensors = body[8 : 8 + length], body[8 + length :]
    match rng.randrange(3):
        case 0:
            body = bytes_of(rng, body)
        case 1:
            text = json_of(rng, text)
            body = len(text).to_bytes(8, "little") + text + tensors
        case _:
            body = body[: 8 + length] + safetensors_of(rng, tensors)
    return data[:20] + hashlib.sha256(body).digest() + body


def tar_of(rng: Random, data: bytes) -> bytes:
    """Replaces the header, with the right checksum."""
    b = bytearray(data)
    at = rng.choice([i for i in range(0, len(b) - 512, 512) if b[i + 257 : i + 262] == b"ustar"])
    match rng.randrange(4):
        case 0:
            names = (b"../../x", b"/etc/passwd", b"a/../config.ron", b"", b"\xff" * 100)
            b[at : at + 100] = rng.choice(names).ljust(100, b"\0")
        case 1:
            b[at + 156] = rng.choice(b"012345678gxLKSDMNVX\0")
        case 2:
            sizes = (b"7" * 11, b"0" * 11, b"\x80" + b"\0" * 9 + b"\1", b"-0000000001", b" " * 11)
            b[at + 124 : at + 136] = rng.choice(sizes) + b"\0"
        case _:
            b[at + 345 : at + 500] = rng.randbytes(155)
    checksum = sum(b[at : at + 148]) + sum(b[at + 156 : at + 512]) + 8 * ord(" ")
    b[at + 148 : at + 156] = b"%06o\0 " % checksum
    return bytes(b)


def npy_of(rng: Random, data: bytes) -> bytes:
    """Replaces the header of an array."""
    dtypes = ("|u1", "<f8", "<i4", "|O", "<M8[s]", "|V1000000000", "<U100000000", "x", "")
    shapes = ("()", "(1,)", "(64, 128)", "(-1, 5)", "(0, 0)", "(10000000, 1000000)", "(1e3, 2)")
    depths = ("(" * 200 + ")" * 200, "(" * 5000, "(" + "1, " * 40 + ")", "'", "[1]*10**9")
    header = (
        f"{{'descr': '{rng.choice(dtypes)}', 'fortran_order': {rng.choice(('True', 'False', '1'))}"
        f", 'shape': {rng.choice((*shapes, *depths))}, }}"
    ).encode()
    header += b" " * (-len(header) % 64) + b"\n"
    version = rng.choice((b"\1\0", b"\1\0", b"\2\0", b"\3\0"))
    width = 2 if version == b"\1\0" else 4
    return b"\x93NUMPY" + version + len(header).to_bytes(width, "little") + header + data[128:]


def npz_of(rng: Random, data: bytes) -> bytes:
    """Changes the members of an archive, or their compression."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = rng.choice(list(members))
    match rng.randrange(4):
        case 0:
            members[name] = npy_of(rng, members[name])
        case 1:
            members[name] = bytes(rng.choice((0, 1, 1 << 20, 20 << 20)))
        case 2:
            members |= {f"{name}{i}": b"" for i in range(rng.choice((1, 100)))}
        case _:
            members[rng.choice(NAMES)] = members.pop(name)
    written, ways = io.BytesIO(), (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2)
    with zipfile.ZipFile(written, "w", rng.choice(ways)) as archive:
        for name, content in members.items():
            archive.writestr(name.replace("\0", "0") or "0", content)
    made = written.getvalue()
    return bytes_of(rng, made) if rng.random() < 0.3 else made


def dataset_of(rng: Random, data: bytes) -> bytes:
    """Changes the header of an archive, or the numbers of an array."""
    if rng.random() < 0.3:
        return npz_of(rng, data)
    with np.load(io.BytesIO(data)) as archive:
        arrays = dict(archive)
    name = rng.choice(list(arrays))
    if name == "header":
        header = json_of(rng, str(arrays[name]).encode()).decode("utf-8", "surrogatepass")
        arrays[name] = np.array(header.replace("\ud800", "?"))
    else:
        array = arrays[name]
        odd = ODD_FLOATS if array.dtype.kind == "f" else ODD_INTS
        array.flat[rng.choices(range(array.size), k=rng.randrange(5) * bool(array.size))] = (
            rng.choice(odd)
        )
        arrays[name] = array[: rng.choice((len(array), len(array), len(array) // 2))]
    written = io.BytesIO()
    np.savez(written, **arrays)
    return written.getvalue()


def replay_of(rng: Random, data: bytes) -> bytes:
    """Changes the lines of a replay."""
    lines = gzip.decompress(data).splitlines()
    for _ in range(rng.choice((1, 1, 2))):
        i = rng.choice((0, rng.randrange(len(lines))))
        lines[i] = json_of(rng, lines[i])
    return b"\n".join(lines) + b"\n"


SHAPED: dict[str, Mutate] = {
    "config.json": json_of,
    "goal.json": json_of,
    **dict.fromkeys(("azul", "sweep", "pyodide", "page"), json_of),
    "ron": ron_of,
    "config.ron": ron_of,
    "state.ron": ron_of,
    "model.safetensors": safetensors_of,
    "optimizer.safetensors": safetensors_of,
    "safetensors": safetensors_of,
    "agent": agent_of,
    "tar": tar_of,
    "goal.npy": npy_of,
    "start.npz": npz_of,
    "dataset": dataset_of,
    "replay": replay_of,
    "run.json": json_of,
    "curves.jsonl": lines_of,
    **dict.fromkeys(("settings", "program"), ron_of),
}
"""Mutations that keep the surrounding data valid, so that readers reach the mutated part."""


@pytest.mark.attack(0.2)
@pytest.mark.parametrize("name", READERS)
def test_mutated_files(attack: Attack, name: str, tmp_path: Path) -> None:
    reader, rng = READERS[name], attack.rng
    for seed in reader.seeds:
        reader.read(seed, tmp_path)  # import everything before memory is limited
    with limits():
        for _ in attack.rounds(least=20):
            is_shaped = name in SHAPED and rng.random() < 0.7
            mutate = SHAPED[name] if is_shaped else bytes_of
            content = mutate(rng, rng.choice(reader.seeds))
            attack.counts["mutated files"] += 1
            begin_reading()
            try:
                reader.read(content, tmp_path)
                attack.counts["of them read"] += 1
            except reader.error:
                pass
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt):
                    raise
                (tmp_path / "broken").write_bytes(content)
                trace = "".join(traceback.format_exception(error))
                pytest.fail(f"seed {attack.seed}, file {tmp_path / 'broken'}:\n{trace[-3000:]}")
