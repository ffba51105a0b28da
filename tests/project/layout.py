"""The rules of the layout, each a function from a source tree to its breaches, a line each."""

import ast
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

PACKAGE = "entity_env"
LINKS = ("agents", "games", "vec")
MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 60

# What a folder of entity_env may not import of entity_env. "" is the contract: entity_env/*.py;
# `check` belongs to it too.
FORBIDDEN = {
    "": ("agents", "vec", "games", "cli", "interop"),
    "check": ("agents", "vec", "games", "cli", "interop"),
    "agents": ("vec", "games", "cli", "interop"),
    "vec": ("games", "cli", "interop"),
    "games": ("agents", "vec", "cli", "interop"),
    "interop": ("cli",),
}
# What they may import all the same: a game needs the type of who it asks, a batch game its base.
EXCEPTIONS = {
    "games": (
        "entity_env.agents.Agent",
        "entity_env.authoring.agent.Agent",
        *(f"entity_env.vec.{name}" for name in ("BatchEnv", "ResetMask", "StepResult")),
        *(f"entity_env.vec.{name}" for name in ("batch.*", "batch_compiled.*")),
    ),
}
# Who may import a dependency that not every installation has.
OPTIONAL = {
    "torch": ("agents/rogue_net/torch_*", "agents/ppo/*", "games/pixel/*"),
    "numba": ("games/classic/*", "*compiled*"),
    "warp": ("games/pixel/*",),
    "gymnasium": ("interop/*",),
    "pettingzoo": ("interop/*",),
    "entity_gym": ("interop/*",),
}


class Source(NamedTuple):
    """A module, parsed, with its path from the root of the tree."""

    path: Path
    text: str
    tree: ast.Module


def sources(root: Path, *folders: str) -> Iterator[Source]:
    """Parse every module below the folders; one that is not there has none."""
    for folder in folders:
        for path in sorted((root / folder).rglob("*.py")):
            text = path.read_text()
            yield Source(path.relative_to(root), text, ast.parse(text))


def arrows(root: Path) -> list[str]:
    """Imports against contract <- agents <- vec, games <- contract and Agent, nothing <- cli."""
    return [
        f"{source.path}:{line} imports {name}"
        for source in sources(root, PACKAGE)
        for line, name in imports(source)
        if not _may_import(_folder(source), name)
    ]


def optional_dependencies(root: Path) -> list[str]:
    """Imports of torch, numba and their like outside the places that may have them."""
    return [
        f"{source.path}:{line} imports {name}"
        for source in sources(root, PACKAGE)
        for line, name in imports(source)
        for place in [source.path.relative_to(PACKAGE).as_posix()]
        if not any(fnmatch(place, allowed) for allowed in OPTIONAL.get(name.split(".")[0], ("*",)))
    ]


def link_imports(root: Path) -> list[str]:
    """Imports through the links at the top level."""
    return [
        f"{source.path}:{line} imports {name}"
        for source in sources(root, PACKAGE, "tests", "examples", "benchmarks", "tools")
        for line, name in imports(source, typing_too=True)
        if name.split(".")[0] in LINKS
    ]


def sizes(root: Path) -> list[str]:
    """Files and functions that are too long."""
    files = [
        f"{source.path} has {lines} lines"
        for source in sources(root, PACKAGE)
        if (lines := len(source.text.splitlines())) > MAX_FILE_LINES
    ]
    functions = [
        f"{source.path}:{node.lineno} {node.name} has {lines} lines"
        for source in sources(root, PACKAGE)
        for node in ast.walk(source.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > MAX_FUNCTION_LINES
    ]
    return files + functions


def prints_and_asserts(root: Path) -> list[str]:
    """Calls of print and assert statements in the library."""
    return [
        f"{source.path}:{node.lineno} {ast.unparse(node)}"
        for source in sources(root, PACKAGE)
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Assert)
        or (isinstance(node, ast.Call) and ast.unparse(node.func) == "print")
    ]


def links(root: Path) -> list[str]:
    """Links that are missing, absolute or point elsewhere."""
    return [
        f"{name}: expected a link to {PACKAGE}/{name}"
        for name in LINKS
        if not (root / name).is_symlink() or (root / name).readlink() != Path(PACKAGE, name)
    ]


def imports(source: Source, *, typing_too: bool = False) -> Iterator[tuple[int, str]]:
    """Yield line and absolute dotted name of each import at any depth, `if TYPE_CHECKING` aside."""
    waiting: list[ast.AST] = [source.tree]
    while waiting:
        match waiting.pop():
            case ast.Import(names=names, lineno=line):
                yield from ((line, alias.name) for alias in names)
            case ast.ImportFrom(names=names, lineno=line) as node:
                yield from ((line, f"{_origin(node, source)}.{alias.name}") for alias in names)
            case ast.If(test=test, orelse=orelse) if _is_for_typing(test) and not typing_too:
                waiting.extend(orelse)
            case node:
                waiting.extend(ast.iter_child_nodes(node))


def _is_for_typing(test: ast.expr) -> bool:
    return ast.unparse(test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def _origin(node: ast.ImportFrom, source: Source) -> str:
    """Return the absolute name of the module imported from."""
    if not node.level:
        return node.module or ""
    package = source.path.parts[: len(source.path.parts) - node.level]
    return ".".join([*package, *filter(None, [node.module])])


def _folder(source: Source) -> str:
    """Return the folder of entity_env that a module belongs to, "" for the contract."""
    return source.path.parts[1] if len(source.path.parts) > 2 else ""


def _may_import(folder: str, name: str) -> bool:
    if any(fnmatch(name, exception) for exception in EXCEPTIONS.get(folder, ())):
        return True
    package, _, rest = name.partition(".")
    target = rest.split(".")[0]
    return package != PACKAGE or target == folder or target not in FORBIDDEN.get(folder, ())
