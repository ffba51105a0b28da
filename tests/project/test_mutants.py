"""Mutants: each is a different, valid program."""

from __future__ import annotations

import ast
import random
from pathlib import Path

import pytest

from tools.mutants import mutants_by_folder, mutants_of

SOURCE = """
def share(x: int = 3, *, most: bool = True) -> int:
    if x < 2 and most:
        raise ValueError(f"{x + 1} is {'no' + 'thing'}")
    for i in range(x):
        if not most:
            continue
        x += i
        print(x)
    return x
"""


def test_mutants_of_a_module() -> None:
    found = [(mutant.line, mutant.was, mutant.now) for mutant in mutants_of(SOURCE, "share.py")]
    assert found == [
        (2, "3", "(4)"),
        (2, "True", "(False)"),
        (3, "x < 2 and most", "(not (x < 2 and most))"),
        (3, "x < 2 and most", "(x < 2 or most)"),
        (3, "x < 2", "(x <= 2)"),
        (3, "2", "(3)"),
        (6, "not most", "(most)"),
        (7, "continue", "break"),
        (8, "x += i", "x -= i"),
        (9, "print(x)", "pass"),
        (10, "return x", "return None"),
    ]


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_every_mutant_is_another_program() -> None:
    rng = random.Random(1)
    for folder, mutants in mutants_by_folder().items():
        for mutant in rng.sample(mutants, min(4, len(mutants))):
            data = Path(mutant.path).read_bytes()
            changed = data[: mutant.start] + mutant.now.encode() + data[mutant.end :]
            assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(data)), mutant
            assert mutant.folder == folder
