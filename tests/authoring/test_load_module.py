"""Modules by file, folder and name: packages, taken names, and search paths."""

from __future__ import annotations

import importlib.util
import pickle
import py_compile
import string
import sys
import textwrap
import traceback
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path

import cloudpickle
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from entity_env import UsageError
from entity_env.authoring.load_module import (
    _pickler_class,
    file_below,
    import_named,
    load_module,
    to_pickle,
    where_tried,
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty current folder, `home`; its modules and paths are removed afterwards."""
    path, modules = sys.path.copy(), sys.modules.copy()
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(home)
    yield home
    sys.path[:] = path
    for name in sys.modules.keys() - modules:
        file = getattr(sys.modules[name], "__file__", None)
        if file is not None and Path(file).is_relative_to(tmp_path):
            del sys.modules[name]
    for name in cloudpickle.list_registry_pickle_by_value() & (sys.modules.keys() - modules):
        cloudpickle.unregister_pickle_by_value(sys.modules[name])


def write(root: Path, **files: str) -> None:
    """Writes files; `__` in a name means a slash."""
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("/init/", "/__init__")
        path = path.with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def package(root: Path, *names: str) -> None:
    for name in names:
        (root / name).mkdir(parents=True, exist_ok=True)
        (root / name / "__init__.py").write_text("")


@pytest.mark.parametrize("imported", [".units", "lands.units", "units", "lands", "beside"])
def test_a_file_of_a_package_imports_what_it_likes(folder: Path, imported: str) -> None:
    """Relative imports, by the package's name, from next to it, and from the current folder."""
    package(folder, "lands")
    write(folder, lands__units="SIZE = 3\n", beside="")
    (folder / "lands" / "game.py").write_text(f"from {imported} import *\nHERE = __name__\n")
    module = load_module(Path("lands/game.py"))
    assert module.HERE == "lands.game"
    assert "units" not in imported or module.SIZE == 3


def test_the_current_folder_does_not_matter(folder: Path) -> None:
    package(folder.parent, "far", "far/deep")
    write(folder.parent, far__units="SIZE = 3\n", far__deep__game="from ..units import SIZE\n")
    module = load_module(folder.parent / "far" / "deep" / "game.py")
    assert (module.__name__, module.SIZE) == ("far.deep.game", 3)


def test_a_file_is_executed_once_however_it_is_named(folder: Path) -> None:
    package(folder, "lands")
    write(folder, lands__game="class Move: ...\n", alone="class Move: ...\n")
    for name in ("lands.game", "alone"):
        path = Path(f"{name.replace('.', '/')}.py")
        module = load_module(path)
        assert load_module(path.resolve()) is module
        assert import_named(name) is module
        assert file_below(name) == path
    assert load_module(Path("lands")) is sys.modules["lands"]


def test_a_name_that_is_taken_hides_nothing_and_is_sent_by_value(folder: Path) -> None:
    """Also for packages, whose modules can still import each other."""
    package(folder, "json")
    write(
        folder,
        random="class Move: ...\n",
        json__units="SIZE = 3\n",
        json__game="from .units import SIZE\nclass Move: ...\n",
    )
    before = sys.modules["random"], sys.modules["json"]
    alone, inside = load_module(Path("random.py")), load_module(Path("json/game.py"))
    assert (alone.__name__, inside.__name__, inside.SIZE) == ("random_game", "json_game.game", 3)
    assert load_module(Path("random.py")) is alone
    assert (sys.modules["random"], sys.modules["json"]) == before
    for module in (alone, inside):
        data = to_pickle(module.Move)
        del sys.modules[module.__name__]
        assert pickle.loads(data).__name__ == "Move"


def test_what_is_sent_by_value_fails_with_its_file_and_line(folder: Path) -> None:
    write(folder, random="def outer():\n    return [1 / n for n in (1, 0)]\n")
    outer = load_module(Path("random.py")).outer

    def inner() -> list[float]:
        found: list[float] = outer()
        return found

    data = to_pickle(inner)
    del sys.modules["random_game"]
    with pytest.raises(ZeroDivisionError) as caught:
        pickle.loads(data)()
    frames = traceback.extract_tb(caught.value.__traceback__)[1:]
    places = [(frame.filename, frame.line) for frame in frames if frame.name != "<listcomp>"]
    file = str(folder / "random.py")
    assert places == [(__file__, "found: list[float] = outer()"), (file, frames[1].line)]
    assert frames[-1] == (file, 2, frames[-1].name, "return [1 / n for n in (1, 0)]")


def test_what_caches_its_results_is_sent_by_value(folder: Path) -> None:
    """cloudpickle cannot do this; importable functions keep their name and cache."""
    text = """
        import functools

        @functools.cache
        def factorial(n):
            return n * factorial(n - 1) if n else 1

        class Env:
            @functools.lru_cache(maxsize=7, typed=True)
            def space(self, agent):
                return agent, factorial(3)

            @functools.cached_property
            def size(self):
                return self.space(2)

        adds = functools.lru_cache(functools.partial(pow, 2))
    """
    write(folder, random=textwrap.dedent(text))
    module = load_module(Path("random.py"))
    module.factorial(5)
    data = to_pickle((module.factorial, module.Env, module.adds))
    del sys.modules["random_game"]
    factorial, env, adds = pickle.loads(data)
    assert factorial.cache_info().currsize == 0
    assert factorial(4) == 24
    assert factorial.cache_info().currsize == 5
    assert env.space.cache_parameters() == {"maxsize": 7, "typed": True}
    assert (env().space("a"), env().size, adds(3)) == (("a", 6), (2, 6), 8)
    assert pickle.loads(to_pickle(_pickler_class)) is _pickler_class


def test_a_game_s_file_takes_the_place_of_one_that_was_loaded_before(folder: Path) -> None:
    """A bot's file does not: the game with this name stays loaded."""
    write(folder, a__walk="PLACE = 1\n", b__walk="PLACE = 2\n", c__walk="PLACE = 3\n")
    load_module(Path("a/walk.py"), first=True)
    second, bot = load_module(Path("b/walk.py"), first=True), load_module(Path("c/walk.py"))
    assert (second.__name__, second.PLACE, bot.__name__, bot.PLACE) == ("walk", 2, "walk_game", 3)
    assert sys.modules["walk"] is second


def test_its_folder_is_searched_first_or_last(folder: Path) -> None:
    package(folder, "a", "b")
    write(folder, x__game="", y__bot="")
    before = sys.path.copy()
    load_module(Path("x/game.py"), first=True)
    load_module(Path("y/bot.py"))
    assert sys.path == [str(folder / "x"), *before, str(folder), str(folder / "y")]


def test_a_file_that_raises_leaves_no_module(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("broken", "json_game"):  # left by other tests
        monkeypatch.delitem(sys.modules, name, raising=False)
    write(folder, broken="1 / 0\n", json="1 / 0\n")
    for name in ("broken.py", "json.py"):
        with pytest.raises(ZeroDivisionError):
            load_module(Path(name))
    assert not {"broken", "json_game"} & sys.modules.keys()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gaem.py", "no file gaem.py; did you mean game.py?"),
        (
            ".",
            r"\. is a folder without __init__.py, so it is not a package: name a file in it, "
            r"such as game.py",
        ),
        (
            "empty",
            "empty is a folder without __init__.py, so it is not a package: name a file in it$",
        ),
        ("notes.txt", "notes.txt is not a Python file"),
    ],
)
def test_what_is_no_module(folder: Path, name: str, message: str) -> None:
    write(folder, game="")
    (folder / "notes.txt").write_text("x = 1\n")
    (folder / "empty").mkdir()
    with pytest.raises(UsageError, match=message):
        load_module(Path(name))


def test_names_of_modules(folder: Path) -> None:
    package(folder, "lands")
    write(folder, lands__broken="import no_such_module\n", plain__game="HERE = __name__\n")
    assert import_named("plain.game").HERE == "plain.game"  # a folder without __init__.py
    for name, missing in (("no_such.game", "no_such"), ("lands.gaem", "lands.gaem")):
        with pytest.raises(
            UsageError, match=f"^there is no module '{missing}' in {folder}, nor in"
        ):
            import_named(name)
    with pytest.raises(ModuleNotFoundError, match="'no_such_module'"):
        import_named("lands.broken")


@pytest.mark.parametrize(
    ("path", "line", "message"),
    [
        ("game.py", "import unist", "; looked in {home} and in the installed packages"),
        (
            "lands/game.py",
            "import unist",
            "; looked in {home}, {home}/lands and in the installed pac",
        ),
        (
            "plain/game.py",
            "from .units import X",
            "; {home}/plain is not a package: give it an __init",
        ),
        (
            "lands/game.py",
            "from ..units import X",
            "; the package ends at {home}/lands: {home} has",
        ),
        ("../far/game.py", "import far.units", "start the command in {home.parent}, or give "),
    ],
)
def test_where_an_import_was_tried(folder: Path, path: str, line: str, message: str) -> None:
    package(folder, "lands")
    file = folder / path
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"{line}\n")
    with pytest.raises(ImportError) as error:
        load_module(Path(path))
    assert message.format(home=folder) in where_tried(error.value, Path(path))


PARTS = st.lists(st.text(string.ascii_lowercase, min_size=1, max_size=3), min_size=1, max_size=3)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(PARTS, st.integers(0, 3))
def test_a_file_and_its_name_lead_to_each_other(
    folder: Path, parts: list[str], inside: int
) -> None:
    """From every folder of the package; its replays name the module."""
    parts = [f"pack_{part}" for part in parts]
    root = folder / f"root{len(list(folder.iterdir()))}"
    package(root, *("/".join(parts[: i + 1]) for i in range(len(parts) - 1)))
    file = root.joinpath(*parts).with_suffix(".py")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root.joinpath(*parts[: min(inside, len(parts) - 1)]))
        found = file_below(".".join(parts))
        assert found is not None
        assert found.resolve() == file
        assert file_below(f"other.{parts[-1]}") is None


@pytest.mark.parametrize("name", ["/etc/passwd", "..", "", "a/b", "../game"])
def test_a_name_cannot_lead_out_of_the_current_folder(folder: Path, name: str) -> None:
    write(folder.parent, game="")
    assert file_below(name) is None


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("entity_env.authoring.load_module.TOLD_AFTER_S", 0.02)
    monkeypatch.setattr("entity_env.authoring.load_module.MAX_LOAD_S", 0.1)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    "loop",
    [
        "while True:\n    pass\n",
        "import time\nwhile True: time.sleep(9)\n",
        "import looping_window\n",
    ],
)
def test_a_main_loop_at_import_is_told_with_its_line_and_ended(
    folder: Path, caplog: pytest.LogCaptureFixture, loop: str
) -> None:
    write(
        folder,
        looping=f"x = 1\n{loop}",
        looping_window="while True:\n  try: [0][1]\n  except Exception: 0\n",
    )
    own = "looping_window.py" if "window" in loop else "looping.py"
    with pytest.raises(
        UsageError, match=rf"^{own}, line \d ran for 0.1 s, so looping.py is not loa"
    ):
        load_module(Path("looping.py"), first=True)
    [line] = caplog.messages  # once
    assert line.startswith(f"{own}, line ")
    assert "under if __name__ ==" in line
    assert "looping" not in sys.modules
    with pytest.raises(UsageError, match=r"ran for 0\.1 s"):
        import_named("looping")


@pytest.mark.usefixtures("impatient")
def test_slow_imports_of_other_modules_are_no_loop(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The module that sleeps is installed, as torch is."""
    (folder.parent / "site").mkdir()
    monkeypatch.syspath_prepend(str(folder.parent / "site"))
    write(
        folder.parent,
        site__slow_library="import time\nend = time.time() + 0.2\nwhile time.time() < end: 0\n",
    )
    write(folder, patient="import slow_library\n")
    load_module(Path("patient.py"))
    assert caplog.messages == []


def test_code_of_named_files_is_compiled_from_its_source(folder: Path) -> None:
    """Also that of a package and of what it imports; bytecode is neither read nor written."""
    package(folder, "compiled_pack")
    write(
        folder,
        evil="X = 2\n",
        compiled_pack__game="from compiled_pack.unit import X\n",
        compiled_pack__unit="X = 1\n",
    )
    for place in (folder / "compiled_pack").glob("*.py"):
        py_compile.compile(
            str(folder / "evil.py"),
            importlib.util.cache_from_source(str(place)),
            doraise=True,
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )
    assert load_module(Path("compiled_pack/game.py")).X == 1
    load_module(Path("evil.py"))
    assert not (folder / "__pycache__").exists()


def test_modules_installed_below_a_named_folder_are_pythons(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in its .venv: their bytecode is used, which saves seconds."""
    monkeypatch.syspath_prepend(str(folder / ".venv" / "site"))
    write(folder, named_top="import installed_below\n")
    (folder / ".venv" / "site").mkdir(parents=True)
    (folder / ".venv" / "site" / "installed_below.py").write_text("x = 1\n")
    load_module(Path("named_top.py"))
    assert type(sys.modules["installed_below"].__loader__) is SourceFileLoader
