"""Training with the examples in the READMEs gives the networks of their Python twins, bit for bit.

The twins play equal episodes, and a seed repeats a run exactly, so nothing may differ.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from click.testing import CliRunner

from entity_env.cli import main
from tests import ROOT

CLIENTS: Final = ROOT / "clients"
TIMES: Final = ("elapsed_s", "charts/steps_per_s", "evaluation/")
"""Figures that depend on the speed of the machine; evaluations do, as slow ones are fewer."""
pytestmark = pytest.mark.slow


class Example(NamedTuple):
    """A client, what its README starts, and what builds the program in a copy of the client."""

    client: str
    program: str
    build: str = ""


EXAMPLES: Final = (
    Example("c", "gcc", "make -s games/cherry_pick"),
    Example("rust", "cargo", "cargo build --quiet --release --offline --example cherry_pick"),
    Example("javascript", "node"),
    Example("godot", "godot3-server"),
    Example("lua", "lua5.4"),
)


class Run(NamedTuple):
    """What a training run leaves."""

    curves: list[dict[str, float]]
    network: bytes
    evaluation: float


def trained(words: list[str], out: Path) -> Run:
    """Trains in this process with the words of a command line."""
    result = CliRunner().invoke(main, [*words, "--out", str(out)])
    assert result.exit_code == 0, result.output
    lines = [json.loads(line) for line in (out / "curves.jsonl").read_text().splitlines()]
    return Run(
        [{k: v for k, v in line.items() if not k.startswith(TIMES)} for line in lines],
        (out / "checkpoint" / "model.safetensors").read_bytes(),
        [line["evaluation/mean_reward"] for line in lines if "evaluation/mean_reward" in line][-1],
    )


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Run]:
    """Trains the game of this package, once for each command line."""

    @cache
    def run(*words: str) -> Run:
        return trained(list(words), tmp_path_factory.mktemp("twin") / "run")

    return run


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.client)
def test_the_example_trains_like_its_twin(
    example: Example, twin: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which(example.program) is None:
        pytest.skip(f"{example.program} is not installed")
    source, folder = CLIENTS / example.client, tmp_path / example.client
    readme = (source / "README.md").read_text()
    command = re.search(
        r"^(entity-env train .*\b(snake|cherry_pick)\b.*)  # mean reward ([\d.]+)", readme, re.M
    )
    assert command is not None
    shutil.copytree(
        source, folder, ignore=shutil.ignore_patterns("target", "network.mjs", "node_modules")
    )
    (folder / "games" / command[2]).unlink(missing_ok=True)
    if example.build:
        subprocess.run(shlex.split(example.build), cwd=folder, env=os.environ, check=True)
    monkeypatch.chdir(folder)
    _, verb, game, *options = shlex.split(command[1].removesuffix(" --out run"))
    ours = trained([verb, game, *options], tmp_path / "run")
    theirs = twin(verb, command[2], *options)
    assert ours.curves == theirs.curves
    assert ours.network == theirs.network
    assert ours.evaluation >= float(command[3])
