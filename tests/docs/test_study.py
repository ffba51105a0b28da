"""The commands of docs/how-to/study.md run with fewer steps and produce the described files."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from entity_env.agents.ppo import read_run
from tests import ROOT
from tests.docs.test_snippets import blocks

PAGE = ROOT / "docs" / "how-to" / "study.md"
TINY = {
    "train": ("--steps", "512", "--num-envs", "16", "--eval-episodes", "2", "--compile", "never"),
    "sweep": ("--steps", "256", "--num-envs", "16", "--trials", "2", "--repeats", "2"),
}
"""Options appended to override those on the page."""


def run(line: str, folder: Path) -> str:
    words = shlex.split(line)[1:]
    command = [sys.executable, "-m", "entity_env", *words, *TINY.get(words[0], ())]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, (line, done.stdout, done.stderr)
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_study_is_made_as_the_page_says(tmp_path: Path) -> None:
    lines = [
        line.removeprefix("$ ")
        for block in blocks(PAGE)
        if block.language == "console"
        for line in block.text.splitlines()
    ]
    printed = {line: run(line, tmp_path) for line in lines}
    settings = [f"runs/study/{name}" for name in ("plain", "small")]
    names = [f"{folder}/seed-{seed}" for folder in settings for seed in range(1, 6)]
    for name in names:
        assert read_run(tmp_path / name).final_evaluation is not None
    head, *rows = printed["entity-env runs runs/study"].partition("\n\n")[2].splitlines()
    assert head.split()[-5:] == ["mean", "IQM", "P(first", ">", "this)"]
    assert [row.split().count("5") for row in rows[:2]] == [1, 1]
    found = json.loads(printed["entity-env runs runs/study --json"])
    assert sorted(each["run"] for each in found["runs"]) == names
    assert [each["seeds"] for each in found["groups"]] == [[1, 2, 3, 4, 5]] * 2
    assert (tmp_path / "study.html").exists()
    [python] = [block.text for block in blocks(PAGE) if block.language == "py"]
    subprocess.run([sys.executable, "-c", python], cwd=tmp_path, check=True)
