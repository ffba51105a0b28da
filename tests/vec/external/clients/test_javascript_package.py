"""The client for JavaScript as others use it: a package, in a browser, and from TypeScript."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests import ROOT
from tests.helpers.chromium import PROGRAM, Chromium
from tests.page.browser import served
from tests.vec.external.test_javascript import FOLDER
from tests.vec.external.test_javascript_agents import (
    AGENTS,
    in_javascript,
    in_numpy,
    path_of,
    require_equal_episodes,
)

TYPED: Final = Path(__file__).with_name("typed_games.mts")
COMPILER: Final = shutil.which("tsc") or shutil.which("tsc", path=FOLDER / "node_modules" / ".bin")
NEEDS_COMPILER: Final = pytest.mark.skipif(
    COMPILER is None,
    reason="TypeScript is not installed: in clients/javascript, "
    "npm install --no-save --no-package-lock typescript",
)
pytestmark = pytest.mark.slow


def copied(target: Path, *, symlinks: bool = False) -> Path:
    """A copy of the client, without what is installed there."""
    ignored = shutil.ignore_patterns("node_modules")
    return Path(shutil.copytree(FOLDER, target, symlinks=symlinks, ignore=ignored))


# ------------------------------------------------------------------ npm


@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
def test_the_package_works_where_it_is_installed(tmp_path: Path) -> None:
    """`npm pack` replaces the link to the network by its file."""
    copy = copied(tmp_path / "clients" / "javascript", symlinks=True)
    network = ROOT / "entity_env" / "page" / "network.mjs"
    (tmp_path / "entity_env" / "page").mkdir(parents=True)
    shutil.copy(network, tmp_path / "entity_env" / "page")
    assert (copy / "network.mjs").is_symlink()
    done = subprocess.run(
        ["npm", "pack", "--json"], cwd=copy, capture_output=True, text=True, timeout=50
    )
    assert done.returncode == 0, done.stderr
    [packed] = json.loads(done.stdout[done.stdout.index("[\n") :])
    assert {each["path"] for each in packed["files"]} == {
        *("README.md", "entity-env.d.mts", "entity-env.mjs", "network.mjs", "package.json"),
        *(f"games/{name}.mjs" for name in AGENTS),
    }
    assert (copy / "network.mjs").is_symlink()
    assert (copy / "network.mjs").read_bytes() == network.read_bytes()

    home = tmp_path / "home"
    home.mkdir()
    install = ["npm", "install", "--offline", "--no-audit", str(copy / packed["filename"])]
    installed = subprocess.run(install, cwd=home, capture_output=True, text=True, timeout=50)
    assert installed.returncode == 0, installed.stderr
    shutil.rmtree(copy)
    seeds, expected = in_numpy("snake")
    code = in_javascript("snake", seeds, str(path_of("snake")))
    code = code.replace('"./entity-env.mjs"', '"entity-env"')
    code = code.replace('"./games/', '"./node_modules/entity-env/games/')
    played = subprocess.run(
        ["node", "--input-type=module", "--eval", code],
        cwd=home,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert played.returncode == 0, played.stderr
    require_equal_episodes(json.loads(played.stdout), expected)


# ------------------------------------------------------------------ browsers


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Chromium]:
    """A page in the folder of the client, with all agents, without a bundler."""
    if PROGRAM is None:
        pytest.skip("Chromium is not installed")
    folder = copied(tmp_path / "page")
    for name in AGENTS:
        shutil.copy(path_of(name), folder / f"{name}.agent")
    (folder / "index.html").write_text("<!doctype html><meta charset=utf-8><title>Games</title>")
    with served(folder) as url, Chromium(f"{url}/index.html", tmp_path / "profile") as browser:
        yield browser


@pytest.mark.parametrize("name", AGENTS)
def test_episodes_in_a_browser_are_those_of_numpy(name: str, page: Chromium) -> None:
    seeds, expected = in_numpy(name)
    code = in_javascript(name, seeds, f"{name}.agent")
    code = code.replace("console.log(JSON.stringify(found))", "window.found = found")
    page.value(
        "const script = document.createElement('script'); script.type = 'module';"
        f"script.text = {json.dumps(code)}; document.body.append(script)"
    )
    require_equal_episodes(page.wait_for("window.found"), expected)
    assert [each for each in page.problems if "favicon" not in each] == []


def test_an_agent_that_a_page_cannot_load(page: Chromium) -> None:
    message = page.value(
        "import('./entity-env.mjs').then(({loadAgent}) => loadAgent('nowhere.agent'))"
        ".catch(error => String(error))"
    )
    assert message == "Error: cannot load nowhere.agent: the server answered 404"


# ------------------------------------------------------------------ TypeScript


@NEEDS_COMPILER
def test_types_are_those_of_the_module(tmp_path: Path) -> None:
    """Typed games compile, and each mistake marked in them is found."""
    copied(tmp_path / "node_modules" / "entity-env")
    shutil.copy(TYPED, tmp_path)
    assert compiled(tmp_path, "--strict", TYPED.name) == ""


@NEEDS_COMPILER
def test_games_in_javascript_fit_the_types(tmp_path: Path) -> None:
    folder = copied(tmp_path / "client")
    readme = re.search(r"```js\n(.*?)```", (FOLDER / "README.md").read_text(), re.DOTALL)
    assert readme is not None
    (folder / "coin.mjs").write_text(readme[1])
    games = ["coin.mjs", *(f"games/{name}.mjs" for name in AGENTS)]
    assert compiled(folder, "--allowJs", "--checkJs", "--strict", "false", *games) == ""


def test_typed_games_use_all_names() -> None:
    typed = TYPED.read_text()
    for name in re.findall(
        r"^export (?:class|function|interface|type) (\w+)",
        (FOLDER / "entity-env.d.mts").read_text(),
        re.MULTILINE,
    ):
        assert len(re.findall(rf"\b{name}\b", typed)) > 1, name


def compiled(folder: Path, *words: str) -> str:
    """What the compiler of TypeScript says."""
    options = ["--noEmit", "--target", "esnext", "--module", "nodenext"]
    done = subprocess.run(
        [str(COMPILER), *options, *words], cwd=folder, capture_output=True, text=True, timeout=60
    )
    return done.stdout + done.stderr
