"""The header refuses damaged agent files: no sanitizer reports anything, and memory is bounded."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import struct
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import pytest

from benchmarks.peers.network_in_c import HEADERS
from benchmarks.peers.network_vectors import random_weights
from entity_env.agents.rogue_net.checkpoints.agent_file import agent_bytes
from tests import ROOT
from tests.helpers.readers import CORPUS, GOOD
from tests.page.test_network import (
    CONFIGS,
    CONTENT,
    DEPENDENT_CONFIGS,
    HEADER,
    REFUSED,
    SHIPPED,
)

PROBE = Path(__file__).with_name("probe.c")
CHECKS = "-O1 -g -fsanitize=address,undefined,float-cast-overflow -fno-sanitize-recover=all"
SANITIZERS = f"gcc {CHECKS}"
BUILDS = [SANITIZERS, f"{SANITIZERS} -DEA_NO_VECTORS", f"clang {CHECKS}"]
THREADS = "gcc -O1 -g -fsanitize=thread"
OPTIONS = {**CONFIGS, **{f"dependent: {name}": each for name, each in DEPENDENT_CONFIGS.items()}}
NUM_CASES = int(os.environ.get("NUM_FUZZ_CASES", "150"))
ODD = [0, 1, 7, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**62, 2**63, 2**64 - 1]
ODD_JSON = ["-1", "0", "1e999", "1.5", "16777216", "99999999999999999999", "null", "true", '"x"']
ODD_JSON += ['"\\', "[" * 5000, "{}", "[]", "\0", "\xff", '"' * 99, '"\\ud800"', '"\\u0000"', ""]
MEMORY = "ASAN_OPTIONS", "hard_rss_limit_mb=768:max_allocation_size_mb=256:detect_leaks=1"
Run = Callable[..., list[str]]
pytestmark = [
    pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed"),
    pytest.mark.slow,
    pytest.mark.timeout(300),  # thousands of files, with sanitizers
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Loads contents in a program with these options; returns a line of output for each."""
    folder = tmp_path_factory.mktemp("probe")
    made: dict[str, Path] = {}

    def lines(contents: Sequence[bytes], options: str = SANITIZERS, *words: str) -> list[str]:
        if options not in made:
            made[options] = target = folder / f"probe{len(made)}"
            strict = ["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I", str(HEADERS)]
            compiler, *words_of_options = options.split()
            if shutil.which(compiler) is None:
                pytest.skip(f"{compiler} is not installed")
            command = [compiler, *strict, *words_of_options, str(PROBE), "-o", str(target)]
            subprocess.run([*command, "-lm", "-lpthread"], check=True)
        data = b"".join(struct.pack("<Q", len(each)) + each for each in contents)
        done = subprocess.run(
            [str(made[options]), *words],
            input=data,
            capture_output=True,
            env={**os.environ, MEMORY[0]: MEMORY[1]},
            timeout=300,
        )
        found = done.stdout.decode(errors="replace").splitlines()
        assert done.returncode == 0, (len(found), done.stderr.decode(errors="replace")[:3000])
        assert len(found) == len(contents)
        for line, content in zip(found, contents, strict=True):
            assert int(line.split()[0]) <= 60 * len(content) + 100_000
        return [line.partition(" ")[2] for line in found]

    return lines


def _sealed(body: bytes) -> bytes:
    return CONTENT[:20] + hashlib.sha256(body).digest() + body


def _parts(content: bytes) -> tuple[bytes, bytes, bytes]:
    """Description, header of the tensors, and their data."""
    body = content[HEADER:]
    size = int.from_bytes(body[:8], "little")
    rest = body[8 + size :]
    length = int.from_bytes(rest[:8], "little")
    return body[8 : 8 + size], rest[8 : 8 + length], rest[8 + length :]


def _joined(description: bytes, header: bytes, data: bytes) -> bytes:
    sizes = (len(each).to_bytes(8, "little") for each in (description, header))
    return _sealed(next(sizes) + description + next(sizes) + header + data)


def _bad_json(rng: Random, text: bytes) -> bytes:
    places = [i for i, each in enumerate(text) if each in b',:{}"[]']
    at = rng.choice(places) + rng.randint(0, 1)
    end = rng.choice([at, at, rng.choice(places), len(text)])
    return text[:at] + rng.choice(ODD_JSON).encode("latin-1") + text[max(at, end) :]


def _bad_item(rng: Random, text: bytes) -> bytes:
    """Changes one item of a random operation, the order, or what an action depends on."""
    description = json.loads(text)
    listed = description["operations"]
    operation, other = rng.choice(listed), rng.choice(listed)
    match rng.randrange(9):
        case 7:
            actions = description["spaces"]["actions"]
            names = [rng.choice(actions)["name"] for _ in range(rng.randrange(3))]
            rng.choice(actions)["given"] = rng.choice([names, names, names, None, "move", [3]])
        case 8:
            i, k = rng.randrange(len(listed)), rng.randrange(len(listed))
            listed[i], listed[k] = listed[k], listed[i]
        case 0:
            operation[0] = other[0]
        case 1:
            operation[1] = other[1] * rng.randint(0, 2)
        case 2:
            operation[2] = other[2]
        case 3:
            operation[3] = other[3]
        case 4:
            operation[4] = other[4]
        case 5:
            listed.remove(operation)
        case _:
            listed.insert(rng.randrange(len(listed)), other)
    return json.dumps(description).encode()


def mutated(rng: Random, content: bytes) -> bytes:
    """A damaged file, mostly with a correct checksum."""
    description, header, data = _parts(content)
    match rng.randrange(8):
        case 0:
            return content[: rng.randrange(len(content))]
        case 1:
            return _sealed(content[HEADER : rng.randrange(HEADER, len(content))])
        case 2:
            at = rng.randrange(len(content))
            return content[:at] + rng.randbytes(1) + content[at + 1 :]
        case 3:
            body = content[HEADER:]
            at = rng.choice([0, 8 + len(description), rng.randrange(len(body) - 8)])
            return _sealed(body[:at] + struct.pack("<Q", rng.choice(ODD)) + body[at + 8 :])
        case 4:
            return _joined(description, _bad_json(rng, header), data)
        case 5:
            return _joined(_bad_json(rng, description), header, data)
        case 6:
            changed = bytearray(description)
            for _ in range(rng.randint(1, 3)):
                changed[rng.randrange(len(changed))] = rng.randrange(32, 127)
            return _joined(bytes(changed), header, data)
        case _:
            return _joined(_bad_item(rng, description), header, data)


def _of_every_option() -> list[bytes]:
    return [agent_bytes(random_weights((obs, acts), net)) for obs, acts, net in OPTIONS.values()]


def test_all_options_decide_within_their_memory(run: Run) -> None:
    """They allocate nothing: the probe counts."""
    shipped = [(ROOT / "examples" / each).read_bytes() for each in SHIPPED.values()]
    good = [*_of_every_option(), *shipped, (GOOD / "net.agent").read_bytes()]
    assert run(good) == ["ok"] * len(good)
    assert run(good, "gcc -O2") == ["ok"] * len(good)


@pytest.mark.parametrize("build", BUILDS)
def test_extreme_numbers_are_safe(build: str, run: Run) -> None:
    """Numbers of observations become indices only in bounds; no conversion is undefined."""
    seeds, contents = _of_every_option(), list[bytes]()
    for i, content in enumerate(seeds):
        text, header, data = _parts(content)
        rng, numbers = Random(i), bytearray(data)
        contents += [content, _joined(text, header, data)]
        for _ in range(3):  # odd, but finite parameters
            at = 4 * rng.randrange(len(numbers) // 4)
            numbers[at : at + 4] = struct.pack("<f", rng.choice([1e18, -9e17, 1e-45, 0, 1e12]))
        contents.append(_joined(text, header, bytes(numbers)))
    found = run(contents, build)
    assert found[::3] == ["ok"] * len(seeds)


def test_threads_may_share_an_agent(run: Run) -> None:
    contents = _of_every_option()
    assert run(contents, THREADS, "threads") == ["ok"] * len(contents)


def test_damaged_files_are_refused(run: Run) -> None:
    seeds = _of_every_option()
    contents = []
    for name, content in zip(OPTIONS, seeds, strict=True):
        contents += [mutated(Random(f"{name} {i}"), content) for i in range(NUM_CASES)]
    found = run(contents)
    refused = [line for line in found if line != "ok"]
    assert len(refused) > len(found) // 2
    assert all("\n" not in line and len(line) < 300 for line in refused)


def test_every_length_is_refused(run: Run) -> None:
    obs_space, actions, config = CONFIGS["only a global action"]
    content = agent_bytes(random_weights((obs_space, actions), config))
    lengths = [*range(200), *range(200, len(content), 97)]
    found = run([content[:length] for length in lengths])
    found += run([_sealed(content[HEADER:length]) for length in lengths[60:]])
    assert "ok" not in found


def test_what_broke_other_readers_is_refused(run: Run) -> None:
    contents = [path.read_bytes() for path in sorted((CORPUS / "broken").glob("*/*"))]
    assert "ok" not in run(contents)
    assert "ok" not in run([_sealed(each) for each in contents])


def test_it_says_what_it_refuses(run: Run) -> None:
    messages = {
        "another version": "expected version 1 of the agent file, got 2",
        "a wrong byte": "its checksum does not match",
        "an old file": "lists no operations: export it again",
        "an unknown operation": "unknown operation constructor",
        "an unknown option": "unknown option window of attend",
        "an unknown activation": "unknown activation swish",
        "a missing tensor": "expected F32 in action_heads.move.proj.bias",
        "a tensor of another size": "of the tensor",
        "a missing operation": "nothing computes",
    }
    for line, name in zip(run([content for content, _ in REFUSED.values()]), REFUSED, strict=True):
        assert line != "ok", name
        assert re.search(messages.get(name, "."), line), (name, line)


BOMBS: dict[str, Callable[[bytes, bytes, bytes], tuple[bytes, bytes, bytes]]] = {
    "nested lists": lambda _, header, data: (b"[" * (4 << 20), header, data),
    "a list of numbers": lambda _, header, data: (b"[" + b"0," * (2 << 20) + b"0]", header, data),
    "overlapping tensors": lambda text, header, data: (
        text,
        json.dumps(
            {
                str(i): {"dtype": "F32", "shape": [len(data) // 4], "data_offsets": [0, len(data)]}
                for i in range(10_000)
            }
        ).encode(),
        data,
    ),
    "operations that share a tensor": lambda text, header, data: (
        _repeated(
            text, ["normalize", ["features/A"], "features/A", "embedding.embeddings.A.0.", {}]
        ),
        header,
        data,
    ),
}


def _repeated(text: bytes, operation: list[object]) -> bytes:
    description = json.loads(text)
    description["operations"][:0] = [operation] * 60_000
    return json.dumps(description).encode()


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_are_refused(name: str, run: Run) -> None:
    [line] = run([_joined(*BOMBS[name](*_parts(CONTENT)))])
    assert line != "ok" or name == "operations that share a tensor"
