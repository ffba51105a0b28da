"""Names that a package imports on first access."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import entity_env.replay
from entity_env.errors import MissingExtraError
from entity_env.games import treasure_hunt
from entity_env.lazy_imports import late_names
from entity_env.replay import Replay
from tests import ROOT
from tools.docs import reference

PACKAGE = "late_names_package"
WITH_DEPRECATED = [
    package
    for package in sorted(reference.public_packages())
    if "_DEPRECATED" in (ROOT / package.replace(".", "/") / "__init__.py").read_text()
]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A package with modules that need missing packages."""
    folder = tmp_path / PACKAGE
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "numbers.py").write_text("one = 1\n")
    (folder / "of_torch.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')\n"
    )
    (folder / "of_another.py").write_text("import there_is_no_such_module\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield PACKAGE
    for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
        del sys.modules[name]


def test_a_name_is_imported_when_it_is_asked_for(package: str) -> None:
    find = late_names(package, {"one": "numbers"})
    assert f"{package}.numbers" not in sys.modules
    assert find("one") == 1
    assert f"{package}.numbers" in sys.modules


def test_another_name_is_not_there(package: str) -> None:
    find = late_names(package, {"one": "numbers"})
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'two'"):
        find("two")


def test_a_name_that_its_module_lacks(package: str) -> None:
    with pytest.raises(AttributeError, match="two"):
        late_names(package, {"two": "numbers"})("two")


def test_a_deprecated_name_is_the_new_one_and_warns_its_user(package: str) -> None:
    find = late_names(package, {"one": "numbers"}, deprecated={"uno": f"{package}.numbers.one"})
    message = (
        f"^{package}.uno is deprecated, to be removed in the next minor release: "
        f"use {package}.numbers.one$"
    )
    with pytest.warns(DeprecationWarning, match=message) as caught:
        assert find("uno") == 1
    assert caught[0].filename == __file__
    assert find("one") == 1  # without a warning: warnings are errors here


def test_importing_a_deprecated_name_warns_the_file_that_imports_it() -> None:
    with pytest.warns(
        DeprecationWarning, match=r"use entity_env\.replay\.TrainingReplays"
    ) as caught:
        from entity_env.vec import TrainingReplays
    assert TrainingReplays is entity_env.replay.TrainingReplays
    assert caught[0].filename == __file__


@pytest.mark.parametrize("package", WITH_DEPRECATED)
def test_deprecated_names_lead_to_public_ones(package: str) -> None:
    """They are left out of the reference, to discourage new uses."""
    names = reference.public_packages()
    for old, new in import_module(package)._DEPRECATED.items():
        home, _, new_name = new.rpartition(".")
        assert new_name in names[home]
        assert old not in names[package]


@pytest.mark.parametrize("extra", ["train", "pixel"])
def test_a_missing_extra_is_named(package: str, extra: str) -> None:
    find = late_names(package, {"net": "of_torch"}, extra=extra)
    with pytest.raises(MissingExtraError, match=rf"pip install 'entity-env\[{extra}\]'") as caught:
        find("net")
    assert str(caught.value).startswith(f"{package}.net needs the package 'torch'")


def test_what_else_is_missing_is_a_fault_and_no_extra(package: str) -> None:
    with pytest.raises(ModuleNotFoundError, match="there_is_no_such_module") as caught:
        late_names(package, {"x": "of_another"})("x")
    assert not isinstance(caught.value, MissingExtraError)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("package", "name"),
    [
        ("entity_env.agents.ppo", "train"),
        ("entity_env.agents.rogue_net", "RogueNet"),
        ("entity_env.games.pixel", "PixelGoalEnv"),
    ],
)
def test_without_torch_each_package_says_what_to_install(package: str, name: str) -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        f"try: from {package} import {name}\n"
        "except ImportError as error: print(type(error).__name__, error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"MissingExtraError {package}.{name} needs the package 'torch'")


BARE = """
import io, sys
sys.path.insert(0, sys.argv[1])
if sys.argv[2] == "plain":
    sys.modules["entity_env.authoring._speedups"] = None
    sys.modules["entity_env.agents.rogue_net.numpy_net._forward"] = None
from entity_env import Game, Obs, SelectEntity
from entity_env.agents import HumanAgent, ScriptedAgent
from entity_env.games import cherry_pick, multi_snake, rock_paper_scissors, snake
from entity_env.games import tic_tac_toe, treasure_hunt
from entity_env.replay import ReplayWriter

class First(ScriptedAgent):
    def choose(self, obs, *actions):
        found = [obs.allowed(action) for action in actions]
        found = [[e[0] for e in each] if type(each[0]) is list else each[0] for each in found]
        return found[0] if len(found) == 1 else tuple(found)

for game in (cherry_pick, multi_snake, rock_paper_scissors, snake, tic_tac_toe, treasure_hunt):
    agents = [First() for _ in range(game.num_agents)]
    assert len(game.run(*agents, seed=3)) == game.num_agents

out = io.StringIO()
human = HumanAgent(source=io.StringIO("w\\na\\n" * 99), out=out)
writer = ReplayWriter(sys.argv[3], see=True)
treasure_hunt.run(human, seed=4, watch=writer)
assert "Treasure" in out.getvalue()
loaded = {name.partition(".")[0] for name in sys.modules}
print(*loaded & {"numpy", "greenlet", "click", "rich", "entity_env"})
"""


@pytest.mark.slow
@pytest.mark.parametrize("form", ["compiled", "plain"])
def test_a_game_runs_in_an_interpreter_without_any_package(tmp_path: Path, form: str) -> None:
    path = tmp_path / "x.replay"
    command = [sys.executable, "-I", "-S", "-c", BARE, str(ROOT), form, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stderr, done.stdout) == ("", "entity_env\n")
    replay = Replay.load(path)
    assert replay.num_decisions > 1
    assert replay.verify(treasure_hunt) is None
    assert "numpy" not in replay.header.made_with


@pytest.mark.slow
def test_without_packages_the_command_line_says_what_to_install() -> None:
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from entity_env.cli import main"
    command = [sys.executable, "-I", "-S", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == (
        "entity-env: the command line needs the package 'click', which is not installed: "
        "pip install entity-env\n"
    )
