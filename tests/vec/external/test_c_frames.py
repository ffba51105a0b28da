"""The client for C answers or refuses many messages of a host, in one process with sanitizers."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

CLIENT = Path(__file__).parents[3] / "clients" / "c"
SOURCE = Path(__file__).with_name("fuzz_messages.c")
NUM_FRAMES = int(os.environ.get("NUM_FUZZ_FRAMES", "100000"))
pytestmark = [
    pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed"),
    pytest.mark.slow,
]


@pytest.fixture(scope="module", params=["address,undefined", "undefined"])
def fuzz(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fuzzer. Without the address sanitizer, it switches stacks as programs do."""
    made = tmp_path_factory.mktemp("fuzz") / "fuzz_messages"
    options = ["-std=c99", "-O1", "-g", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    options += [f"-fsanitize={request.param}", "-fno-sanitize-recover=all", "-I", str(CLIENT)]
    command = ["gcc", *options, str(SOURCE), "-o", str(made), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return made


@pytest.mark.parametrize("form", ["play", "step"])
def test_every_message_is_answered_or_refused(form: str, fuzz: Path) -> None:
    """A failure names the seed and the frame; NUM_FUZZ_FRAMES sets how many frames are sent."""
    options = "detect_leaks=0:detect_stack_use_after_return=0"
    done = subprocess.run(
        [str(fuzz), form, "1", str(NUM_FRAMES)],
        capture_output=True,
        text=True,
        env={**os.environ, "ASAN_OPTIONS": options},
        timeout=30 + NUM_FRAMES / 1000,
    )
    assert done.returncode == 0, done.stderr
    num_frames, num_answers, num_refused = (int(each) for each in done.stdout.split()[::2])
    assert num_frames >= NUM_FRAMES
    assert num_answers > num_frames // 2
    assert num_refused > num_frames // 20
