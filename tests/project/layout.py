"""The rules of the layout: functions that return the violations in a source tree, one per line."""

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Set
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import NamedTuple

PACKAGE = "entity_env"
LINKS = ("agents", "games", "vec")
_MAY_IMPORT_LINK = re.compile(rf"\b(?:import|from)\b[^#\n]*(?<![\w.])(?:{'|'.join(LINKS)})\b")
MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 60

# Layers, lowest first: a module imports only from its own layer and those below. Imports inside
# functions and under TYPE_CHECKING count, too. `entity_env/__init__.py` re-exports from all layers.
FLOORS = (
    "errors",
    "interrupts",
    "lazy_imports",
    "processes",
    "core",
    "authoring",
    "views",
    "batching",
    "agents",
    "replay",
    "vec",
    "episodes",
    "games",
    "check",
    "interop",
    "cluster",
    "page",
    "cli",
)
# Allowed imports of a game, as for users: names re-exported by these packages or defined in these
# modules. Of agents only the agent interface: games do not depend on training or workers.
FOR_GAMES = (
    *("entity_env", "entity_env.core.episode_stats", "entity_env.core.files"),
    *("entity_env.core.numba_utils", "entity_env.core.vec_env_base", "entity_env.core.seeding"),
    "entity_env.core.validation",
    *("entity_env.errors", "entity_env.lazy_imports", "entity_env.views"),
    *("entity_env.agents.human", "entity_env.agents.ratings", "entity_env.vec.batch_env"),
)
FOR_GAMES_ALONE = (
    *(f"entity_env.agents.{name}" for name in ("Agent", "AgentRun", "GameAgents", "PolicyAgent")),
    *(f"entity_env.vec.{name}" for name in ("ArrayEnv", "Autoreset", "BatchEnv", "GameTraining")),
    *(f"entity_env.vec.{name}" for name in ("ResetMask", "StepResult")),
    *("entity_env.core.vec_env_base", "entity_env.core.seeding"),
)
# The lists of games, which all modules may use; exceptions that may name a game: a command for a
# family of games; and games named like an extra of the package or a family of PettingZoo.
GAME_LISTS = ("GAMES", "registry", "versions")
NAMES_GAMES = ("cli/commands/capture_goal.py",)
EXTRAS = {"pixel", "classic"}
MAX_FILES = 20
# Modules that may import an optional dependency.
OPTIONAL = {
    "torch": (
        *("core/ragged.py", "agents/rogue_net/torch_net/*", "agents/ppo/*", "games/pixel/*"),
        *("agents/training/*", "agents/imitation/cloning.py"),
    ),
    "numba": ("core/numba_utils.py", "*/kernels/*", "*/kernels.py", "*_kernel.py"),
    "warp": ("games/pixel/*",),
    "gymnasium": ("interop/*",),
    "pettingzoo": ("interop/*",),
    "minari": ("interop/*",),
    "entity_gym": ("interop/*",),
    "kaggle_environments": ("interop/*",),
    "ray": ("cluster/*",),
    "onnx": ("agents/rogue_net/onnx_net/*",),
    "onnxruntime": ("agents/rogue_net/onnx_net/*",),
}

_PAIR = "one operation in torch, in numpy and compiled"
_GAME = "of one game: every game defines its own"
# Public classes and functions that several modules may define, with the reason.
SAME_NAME = {
    "Fleet": _GAME,
    "Food": _GAME,
    "Head": _GAME,
    "HumanAgent": "public in `agents` and in `games.azul`",
    "Move": _GAME,
    "Opponent": "public in `agents.ppo.self_play`; an entity of `rock_paper_scissors`",
    "Planet": _GAME,
    "Player": _GAME,
    "RandomAgent": "public in `agents` and in `games.azul`",
    "Segment": _GAME,
    "Send": _GAME,
    "Space": _GAME,
    "layer_norm": _PAIR,
    "linear": _PAIR,
    "main": "entry points of processes",
    "play": _GAME,
    "relate": _PAIR,
    "softmax": _PAIR,
}


class Source(NamedTuple):
    """A parsed module, with its path relative to the root of the tree."""

    path: Path
    text: str
    tree: ast.Module
    nodes: list[ast.AST]


def sources(root: Path, *folders: str) -> Iterator[Source]:
    """Parse every module below the folders; missing folders are skipped."""
    for folder in folders:
        for path in sorted((root / folder).rglob("*.py")):
            yield _parsed(root, path, path.stat().st_mtime_ns)


@cache
def _parsed(root: Path, path: Path, _: int) -> Source:
    text = path.read_text()
    tree = ast.parse(text)
    return Source(path.relative_to(root), text, tree, [*ast.walk(tree)])


def floors(root: Path) -> list[str]:
    """Imports from a higher layer, and forbidden imports of games."""
    return [
        f"{source.path}:{line} imports {name}"
        for source in sources(root, PACKAGE)
        if len(source.path.parts) > 2
        for line, name in imports(source, typing_too=True)
        if not _may_import(source.path.parts[1], name)
    ]


def crowded_folders(root: Path) -> list[str]:
    """Folders with too many files."""
    counts = Counter(
        path.parent.relative_to(root).as_posix()
        for folder in (PACKAGE, "tests")
        for path in (root / folder).rglob("*.py")
    )
    return [f"{folder} has {count} files" for folder, count in counts.items() if count > MAX_FILES]


def undescribed_folders(root: Path) -> list[str]:
    """Packages whose `__init__.py` does not describe their content."""
    return [
        f"{folder.relative_to(root).as_posix()}: describe it in its __init__.py"
        for folder in sorted({path.parent for path in (root / PACKAGE).rglob("*.py")})
        if not _docstring(folder / "__init__.py")
    ]


def import_cycles(root: Path) -> list[str]:
    """Modules that import each other, other than through re-exports in an `__init__.py`."""
    modules = {
        ".".join(source.path.with_suffix("").parts): source
        for source in sources(root, PACKAGE)
        if source.path.name != "__init__.py"
    }
    imported = {
        module: {
            found
            for _, name in imports(source, typing_too=True)
            for found in (name, name.rpartition(".")[0])
            if found in modules and found != module
        }
        for module, source in modules.items()
    }
    return [
        f"{' and '.join(cycle)} import each other"
        for cycle in _components(imported)
        if len(cycle) > 1
    ]


def games_named(root: Path) -> list[str]:
    """Mentions of a game outside `games/`: imports, or its name as a string.

    Code for all games uses the lists of games. Docstrings may have examples.
    """
    names = _games(root)
    found = []
    for source in sources(root, PACKAGE):
        place = source.path.relative_to(PACKAGE).as_posix()
        if place.startswith("games/") or place in NAMES_GAMES:
            continue
        found += [
            f"{source.path}:{line} imports {name}"
            for line, name in imports(source, typing_too=True)
            if name.startswith(f"{PACKAGE}.games.")
            and not name.startswith(tuple(f"{PACKAGE}.games.{each}" for each in GAME_LISTS))
        ]
        found += [
            f"{source.path}:{node.lineno} names the game {node.value!r}"
            for node in source.nodes
            if isinstance(node, ast.Constant) and node.value in names
        ]
    return found


def _games(root: Path) -> set[str]:
    """The names of the games: modules and packages in `games/`, other than the lists."""
    places = (root / PACKAGE / "games").glob("*")
    is_there = (path for path in places if path.suffix == ".py" or (path / "__init__.py").exists())
    names = {path.stem for path in is_there}
    return names - {"__init__", "registry", "versions"} - EXTRAS


def optional_dependencies(root: Path) -> list[str]:
    """Imports of optional dependencies, such as torch, outside the allowed modules."""
    return [
        f"{source.path}:{line} imports {name}"
        for source in sources(root, PACKAGE)
        for line, name in imports(source)
        for place in [source.path.relative_to(PACKAGE).as_posix()]
        if not any(fnmatch(place, allowed) for allowed in OPTIONAL.get(name.split(".")[0], ("*",)))
    ]


def link_imports(root: Path) -> list[str]:
    """Imports through the symbolic links at the top level."""
    folders = (PACKAGE, "tests", "examples", "benchmarks", "tools")
    return [
        f"{source.path}:{line} imports {name}"
        for folder in folders
        for path in sorted((root / folder).rglob("*.py"))
        if _MAY_IMPORT_LINK.search(path.read_text())  # parsing all tests takes seconds
        for source in [_parsed(root, path, path.stat().st_mtime_ns)]
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
        for node in source.nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > MAX_FUNCTION_LINES
    ]
    return files + functions


def repeated_names(root: Path) -> list[str]:
    """Public classes and functions with the same name in several modules."""
    return [
        f"{paths[0]} and {', '.join(paths[1:])} define {name}: rename all but one"
        for name, paths in sorted(_definitions(root).items())
        if len(paths) > 1 and name not in SAME_NAME
    ]


def unused_exceptions(root: Path) -> list[str]:
    """Entries of `SAME_NAME` that are defined in at most one module."""
    found = _definitions(root)
    return [f"SAME_NAME: remove {name}" for name in SAME_NAME if len(found.get(name, ())) < 2]


def _definitions(root: Path) -> dict[str, list[str]]:
    """Modules that define each public class or function at their top level."""
    found: dict[str, list[str]] = {}
    for source in sources(root, PACKAGE):
        names = {
            node.name
            for node in source.tree.body
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        }
        for name in names:
            if not name.startswith("_"):
                found.setdefault(name, []).append(str(source.path))
    return found


def prints_and_asserts(root: Path) -> list[str]:
    """Assert statements in the library, and output that bypasses `cli.display.console`."""
    return [
        f"{source.path}:{node.lineno} {ast.unparse(node)}"
        for source in sources(root, PACKAGE)
        for node in source.nodes
        if isinstance(node, ast.Assert)
        or (
            isinstance(node, ast.Call)
            and (name := ast.unparse(node.func))
            in ("print", "click.echo", "click.secho", "Console")
            and str(source.path) != f"{PACKAGE}/cli/display/console.py"
            and (name != "Console" or imports_rich_console(source.tree))
        )
    ]


def imports_rich_console(tree: ast.Module) -> bool:
    """Whether rich's own console, which prints control characters, is imported."""
    return any(
        isinstance(node, ast.ImportFrom)
        and node.module == "rich.console"
        and any(each.name == "Console" for each in node.names)
        for node in ast.walk(tree)
    )


def links(root: Path) -> list[str]:
    """Links that are missing, absolute or point elsewhere.

    Without symbolic links, as in a zip or on Windows, git writes a file with the target, and a
    source distribution contains no links.
    """
    return [
        f"{name}: expected a link to {PACKAGE}/{name}"
        for name in LINKS
        for link in [root / name]
        if not (link.is_symlink() and link.readlink() == Path(PACKAGE, name))
        and not (link.is_file() and link.read_text() == f"{PACKAGE}/{name}")
        and (link.exists() or link.is_symlink() or (root / ".git").exists())
    ]


_BLOCKS = ast.stmt | ast.excepthandler | ast.match_case


def imports(source: Source, *, typing_too: bool = False) -> Iterator[tuple[int, str]]:
    """Yield line and absolute dotted name of all imports at any depth, not `if TYPE_CHECKING`."""
    waiting: list[ast.AST] = [source.tree]
    while waiting:
        match waiting.pop():
            case ast.Import(names=names, lineno=line):
                yield from ((line, alias.name) for alias in names)
            case ast.ImportFrom(names=names, lineno=line) as node:
                yield from ((line, f"{_origin(node, source)}.{alias.name}") for alias in names)
            case ast.If(test=test, orelse=orelse) if not typing_too and _is_for_typing(test):
                waiting.extend(orelse)
            case node:  # expressions contain no imports
                children = ast.iter_child_nodes(node)
                waiting.extend(each for each in children if isinstance(each, _BLOCKS))


def _is_for_typing(test: ast.expr) -> bool:
    return ast.unparse(test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def _origin(node: ast.ImportFrom, source: Source) -> str:
    """Return the absolute name of the module imported from."""
    if not node.level:
        return node.module or ""
    package = source.path.parts[: len(source.path.parts) - node.level]
    return ".".join([*package, *filter(None, [node.module])])


def _may_import(folder: str, name: str) -> bool:
    package, *rest = name.split(".")
    if package != PACKAGE or folder not in FLOORS:
        return package != PACKAGE
    if folder == "games" and rest[0] != "games":
        where, _, last = name.rpartition(".")
        is_public = where in FOR_GAMES and not last.startswith("_") and last not in FLOORS
        return is_public or name in FOR_GAMES_ALONE
    return rest[0] in FLOORS and FLOORS.index(rest[0]) <= FLOORS.index(folder)


def _docstring(path: Path) -> str | None:
    return ast.get_docstring(ast.parse(path.read_text())) if path.exists() else None


def _components(edges: Mapping[str, Set[str]]) -> list[list[str]]:
    """The strongly connected components of a graph (Tarjan 1972)."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        order[node] = lowest[node] = len(order)
        stack.append(node)
        for other in sorted(edges[node]):
            if other not in order:
                visit(other)
            if other in stack:
                lowest[node] = min(lowest[node], lowest[other])
        if lowest[node] == order[node]:
            at = stack.index(node)
            found.append(sorted(stack[at:]))
            del stack[at:]

    for node in edges:
        if node not in order:
            visit(node)
    return found
