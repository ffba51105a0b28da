"""Mutation testing: makes small changes to the package, runs the tests: `python -m tools.mutants`.

A mutant is the package with one small change: `<` becomes `<=`, `+` becomes `-`, a condition is
inverted, a number is increased by 1, a call is left out, a result becomes None. A seeded sample is
drawn from every folder.

Each mutant runs the tests of its file, then those of its folder (slow tests last), and, if none
fails, all fast tests. A mutant that survives is a change that no test detects. Everything runs in a
copy, so this checkout never changes. `--keep FILE` stores results and reuses stored ones, also
after comments have changed.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from queue import Queue
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]
_PACKAGE: Final = "entity_env"
_DEPTH: Final = 2
"""Depth, below the package, of the folders that mutants are drawn from."""
_LIMIT_S: Final = 900
"""Time limit of one test run; a mutant that takes longer counts as caught."""
_OTHER: Final[dict[type[ast.AST], type[ast.AST]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
_CAUGHT: Final = ("own tests", "all tests")


class Mutant(NamedTuple):
    """One change in a file of the package.

    Args:
        path: of the file, relative to the root.
        line: of the change.
        start, end: byte offsets of the change.
        was, now: source before and after the change.
        nth: index among the mutants of the file with these `was` and `now`.
    """

    path: str
    line: int
    start: int
    end: int
    was: str
    now: str
    nth: int

    @property
    def key(self) -> tuple[str, str, str, int]:
        """Identity of the mutant, which changes of comments and docstrings leave as it is."""
        return self.path, self.was, self.now, self.nth

    @property
    def folder(self) -> str:
        """The folder in which it is counted."""
        return "/".join(self.path.split("/")[1:-1][:_DEPTH]) or "."

    def __str__(self) -> str:
        was, now = (" ".join(text.split())[:60] for text in (self.was, self.now))
        return f"{self.path}:{self.line}: {was}  ->  {now}"


def main() -> None:
    """Draws mutants, tests them and reports."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--each", type=int, default=5, help="mutants per folder; default 5")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="+", metavar="FOLDER", help="such as vec or agents/ppo")
    parser.add_argument("--jobs", type=int, default=1, help="mutants tested in parallel")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="store the results here")
    parser.add_argument("--near", action="store_true", help="skip the final run of all tests")
    parser.add_argument("--list", action="store_true", help="print the mutants and exit")
    given = parser.parse_args()
    drawn = [
        mutant
        for folder, found in sorted(mutants_by_folder().items())
        if given.only is None or folder in given.only
        for mutant in random.Random(f"{given.seed} {folder}").sample(
            found, min(given.each, len(found))
        )
    ]
    if given.list:
        sys.stdout.writelines(f"{mutant}\n" for mutant in drawn)
        return
    results = _tested(drawn, given.jobs, given.keep, near=given.near)
    _report(drawn, results)


def mutants_by_folder() -> dict[str, list[Mutant]]:
    """All mutants of the package."""
    found: dict[str, list[Mutant]] = {}
    for path in sorted((ROOT / _PACKAGE).rglob("*.py")):
        for mutant in mutants_of(path.read_text(), str(path.relative_to(ROOT))):
            found.setdefault(mutant.folder, []).append(mutant)
    return found


def mutants_of(text: str, path: str) -> list[Mutant]:
    """All mutants of a module."""
    starts = [0]
    for line in text.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    data, mutants = text.encode(), []
    seen = Counter[tuple[str, str]]()
    for node, other in _changes(ast.parse(text)):
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
        now = ast.unparse(ast.fix_missing_locations(other))
        if isinstance(node, ast.expr):
            now = f"({now})"
        was = data[start:end].decode()
        mutants.append(Mutant(path, node.lineno, start, end, was, now, seen[was, now]))
        seen[was, now] += 1
    return sorted(mutants, key=lambda mutant: (mutant.start, -mutant.end))


def _changes(tree: ast.AST) -> Iterator[tuple[Any, ast.AST]]:
    """Pairs of a node and its replacement, in all of a module."""
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not _is_left_out(child):
                yield from _changed(child)
                yield from _changes(child)


def _is_left_out(node: ast.AST) -> bool:
    """True for code without effect on results: text, types, error messages."""
    if isinstance(node, ast.JoinedStr | ast.Import | ast.ImportFrom | ast.Raise | ast.Assert):
        return True
    if isinstance(node, ast.If):
        return "TYPE_CHECKING" in ast.unparse(node.test)
    if isinstance(node, ast.AnnAssign):
        return "TypeAlias" in ast.unparse(node.annotation)
    targets = node.targets if isinstance(node, ast.Assign) else []
    return any(isinstance(each, ast.Name) and each.id == "__all__" for each in targets)


def _changed(node: Any) -> Iterator[tuple[Any, ast.AST]]:  # noqa: ANN401 - nodes of any kind
    """Replacements of a node."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _OTHER:
        ops = [_OTHER[type(node.ops[0])](), *node.ops[1:]]
        yield node, ast.Compare(node.left, ops, node.comparators)  # type: ignore[arg-type]  # they are operators
    elif isinstance(node, ast.BoolOp | ast.BinOp | ast.AugAssign) and type(node.op) in _OTHER:
        if not (isinstance(node, ast.BinOp) and (_is_text(node.left) or _is_text(node.right))):
            other: Any = copy.copy(node)
            other.op = _OTHER[type(node.op)]()
            yield node, other
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node, node.operand
    elif isinstance(node, ast.If | ast.While | ast.IfExp):
        if not isinstance(node.test, ast.UnaryOp):
            yield node.test, ast.UnaryOp(ast.Not(), node.test)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
        is_flag = isinstance(node.value, bool)
        yield node, ast.Constant(not node.value if is_flag else node.value + 1)
    elif isinstance(node, ast.Return) and node.value is not None and not _is_none(node.value):
        yield node, ast.Return(ast.Constant(None))
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield node, ast.Pass()
    elif isinstance(node, ast.Break | ast.Continue):
        yield node, ast.Continue() if isinstance(node, ast.Break) else ast.Break()


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or isinstance(getattr(node, "value", None), str)


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _tested(
    drawn: Sequence[Mutant], num_jobs: int, keep: Path | None, *, near: bool
) -> dict[Mutant, str]:
    """Result of each mutant: "own tests", "all tests" or "survived"."""
    if keep is not None:
        keep.parent.mkdir(parents=True, exist_ok=True)
    lines = keep.read_text().splitlines() if keep is not None and keep.exists() else []
    kept = {tuple(row["key"]): row["result"] for row in map(json.loads, lines)}
    results = {mutant: kept[mutant.key] for mutant in drawn if mutant.key in kept}
    todo = [mutant for mutant in drawn if mutant not in results]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(num_jobs) as pool:
        copies: Queue[Path] = Queue()
        for i in range(min(num_jobs, len(todo))):
            copies.put(_copy(Path(folder) / str(i)))

        def test(mutant: Mutant) -> tuple[Mutant, str]:
            place = copies.get()
            try:
                return mutant, _result(mutant, place, near=near)
            finally:
                copies.put(place)

        for number, (mutant, result) in enumerate(pool.map(test, todo), 1):
            results[mutant] = result
            if keep is not None and (result in _CAUGHT or not near):
                with keep.open("a") as file:
                    file.write(json.dumps({"key": mutant.key, "result": result}) + "\n")
            sys.stderr.write(f"{number}/{len(todo)} {result}: {mutant}\n")
    return {mutant: results[mutant] for mutant in drawn}


def _copy(place: Path) -> Path:
    """Copies all files that git does not ignore and the compiled modules; returns the folder."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    built = [str(path.relative_to(ROOT)) for path in (ROOT / _PACKAGE).rglob("*.so")]
    for name in [*filter(None, listed.split("\0")), *built]:
        if (ROOT / name).is_file():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, place / name, follow_symlinks=False)
    return place


def _result(mutant: Mutant, place: Path, *, near: bool) -> str:
    """Tests a mutant in a copy, starting with the tests of its file."""
    source = place / mutant.path
    data = source.read_bytes()
    compiled = place.with_name(f"{place.name}-compiled")
    with tempfile.TemporaryDirectory() as cache:
        environment = {
            **os.environ,
            "PYTHONPATH": str(place),
            "PYTHONPYCACHEPREFIX": str(compiled),
        }
        if "numba" in data.decode() or "kernel" in mutant.path:  # nor may numba use its cache
            environment["NUMBA_CACHE_DIR"] = str(Path(cache) / "numba")
        try:
            source.write_bytes(data[: mutant.start] + mutant.now.encode() + data[mutant.end :])
            _forget(source, compiled)
            own = list(_own_tests(mutant, place))
            for kind, tests in product(("not slow", "slow"), own):
                if _fails(["-m", kind, *tests], place, environment):
                    return _CAUGHT[0]
            if near:
                return "survived"
            everything = ["-m", "not slow", "tests", "--numprocesses", "2", "--dist", "loadfile"]
            return _CAUGHT[1] if _fails(everything, place, environment) else "survived"
        finally:
            source.write_bytes(data)
            _forget(source, compiled)


def _forget(source: Path, compiled: Path) -> None:
    """Deletes a file's bytecode, because Python misses two changes within the same second."""
    for path in (compiled / source.parent.relative_to("/")).glob(f"{source.stem}.*.pyc"):
        path.unlink()


def _own_tests(mutant: Mutant, place: Path) -> Iterator[list[str]]:
    """The test file named after the mutated file, then the other tests of its folder."""
    parts = Path(mutant.path).relative_to(_PACKAGE)
    folder = place / "tests" / parts.parent
    while not folder.exists():
        folder = folder.parent
    named = folder / f"test_{parts.stem}.py"
    if named.exists():
        yield [str(named)]
    if folder != place / "tests":
        yield [str(folder), f"--ignore={named}"]


def _fails(tests: Sequence[str], place: Path, environment: dict[str, str]) -> bool:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "-p",
        "no:cacheprovider",
    ]
    profile = ["--hypothesis-profile", "fast"]
    try:
        done = subprocess.run(
            [*command, *profile, *tests],
            cwd=place,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        return True
    return done.returncode not in (0, 5)  # 5: no tests were collected


def _report(drawn: Sequence[Mutant], results: dict[Mutant, str]) -> None:
    """Prints the number of caught mutants per folder, then the survivors."""
    write = sys.stdout.write
    write(f"{'folder':34}{'mutants':>8}{'own':>6}{'all':>6}{'caught':>9}\n")
    for folder in [*sorted({mutant.folder for mutant in drawn}), ""]:
        found = [results[each] for each in drawn if each.folder == folder or not folder]
        own, far = map(found.count, _CAUGHT)
        share = (own + far) / max(1, len(found))
        write(f"{folder or 'all':34}{len(found):8}{own:6}{far:6}{share:9.0%}\n")
    survivors = [mutant for mutant in drawn if results[mutant] not in _CAUGHT]
    write("".join(f"survived: {mutant}\n" for mutant in survivors))


if __name__ == "__main__":
    main()
