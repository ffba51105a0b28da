"""Modules of a user's adapter that a submission contains, and a trial without all others."""

from __future__ import annotations

import ast
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from entity_env.authoring.load_module import place_in_package
from entity_env.errors import UsageError

_PRESENT: Final = frozenset(
    {*sys.stdlib_module_names, "entity_env", "numpy", "kaggle_environments"}
)
"""Modules that every submission can import, by top-level name."""
_TIMEOUT_S: Final = 60.0

_TRIAL: Final = """
import sys
import traceback

allowed = set(sys.argv[1:])


class Alone:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in allowed:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Alone())
try:
    exec(compile(sys.stdin.buffer.read(), "main.py", "exec"), {"__name__": "submission"})
except BaseException as error:
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if ".zip" in f.filename and ".zip/entity_env/" not in f.filename]
    where = own[-1].filename.partition(".zip/")[2] + f":{own[-1].lineno}: " if own else ""
    sys.exit(where + traceback.format_exception_only(error)[-1].strip())
"""


def local_modules(file: Path) -> dict[str, Path]:
    """A module and the modules next to it that it imports, by their place in an archive.

    Follows all imports, also inside functions, except those for type checkers.

    Raises:
        UsageError: an import is neither local nor of Python, numpy or this package, and is not
            optional, that is, inside a `try` with an `except`; or a file is not valid Python.
    """
    name, root = place_in_package(file)
    installed = {Path(sysconfig.get_path(key)).resolve() for key in ("purelib", "platlib")}
    beside = [each for each in dict.fromkeys((root, file.parent)) if each not in installed]
    found: dict[str, Path] = {}
    pending = [*_files_of(name, [root])]
    while pending:
        place, path = pending.pop()
        if place in found:
            continue
        found[place] = path
        for each in _imports(path, place):
            top = each.names[0].partition(".")[0]
            if top in _PRESENT:
                continue
            folders = [root] if top == name.partition(".")[0] else beside
            files = [hit for option in each.names for hit in _files_of(option, folders)]
            if not files and not each.is_optional:
                raise UsageError(
                    f"{path}:{each.line} imports {each.names[0]}, which a submission cannot "
                    "contain: it has numpy, Python's own modules, and modules next to this file"
                )
            pending += files
    return found


def require_alone(text: str, file: Path, modules: Iterable[str]) -> None:
    """Loads a submission in a process that has only Python, numpy and the submission.

    Args:
        text: the submission.
        file: the file of its adapter, for the error.
        modules: places of the embedded modules in the archive.

    Raises:
        UsageError: it raises an exception, or does not load in time.
    """
    from entity_env.processes import run_group  # which a submission does not contain

    own = {each.partition("/")[0].removesuffix(".py") for each in modules}
    words = [sys.executable, "-I", "-c", _TRIAL, *sorted(_PRESENT | own)]
    done = run_group(words, text.encode(), _TIMEOUT_S)
    if done is None:
        raise UsageError(f"{file} takes more than {_TIMEOUT_S:.0f} s to load")
    if done.code:
        lines = done.errors.decode(errors="replace").strip().splitlines()
        what = lines[-1] if lines else f"exit code {done.code}"
        raise UsageError(
            f"{file} cannot be loaded from a submission, which has only numpy and the modules of "
            f"entity_env that agents need: {what}"
        )


class _Import(NamedTuple):
    """An import; `names` may be modules or, in the last place, a name inside a module."""

    names: tuple[str, ...]
    line: int
    is_optional: bool


def _imports(path: Path, place: str) -> Iterator[_Import]:
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError) as error:
        raise UsageError(f"{path} is not valid Python: {error}") from error
    for node, is_optional in _statements(tree, is_optional=False):
        if isinstance(node, ast.Import):
            for each in node.names:
                yield _Import((each.name,), node.lineno, is_optional)
        elif isinstance(node, ast.ImportFrom):
            package = ".".join(Path(place).parts[: -node.level]) if node.level else ""
            base = ".".join(filter(None, (package, node.module)))
            start = (base,) if base else ()
            names = (".".join((*start, each.name)) for each in node.names)
            yield _Import((*start, *names), node.lineno, is_optional)


def _statements(node: ast.AST, *, is_optional: bool) -> Iterator[tuple[ast.AST, bool]]:
    """All nodes below a node that may run, and whether a failed import there is handled."""
    for name, value in ast.iter_fields(node):
        if name == "body" and isinstance(node, ast.If) and _is_for_checkers(node.test):
            continue
        is_tried = name == "body" and isinstance(node, ast.Try) and bool(node.handlers)
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield child, is_optional or is_tried
                yield from _statements(child, is_optional=is_optional or is_tried)


def _is_for_checkers(test: ast.expr) -> bool:
    return "TYPE_CHECKING" in (getattr(test, "id", ""), getattr(test, "attr", ""))


def _files_of(name: str, folders: Iterable[Path]) -> Iterator[tuple[str, Path]]:
    """Places in the archive and files of a module and of the packages that it is in."""
    parts = name.split(".")
    for count in range(1, len(parts) + 1):
        stem = "/".join(parts[:count])
        options = [
            (folder, f"{stem}{end}") for folder in folders for end in ("/__init__.py", ".py")
        ]
        for folder, place in options:
            if (folder / place).is_file():
                yield place, folder / place
                break
