"""Games of several files, seats and kinds of agents, and New game, in Chromium."""

import json
import shutil
import zipfile
from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256, sha384
from pathlib import Path
from textwrap import dedent

import pytest

from entity_env import games
from entity_env.cli.load_game import load_game
from entity_env.page import pyodide
from entity_env.page.collect import ReplayCollector
from entity_env.page.pyodide import FILES, NUMPY, cache_folder
from tests import ROOT
from tests.helpers.chromium import Chromium
from tests.page.browser import (
    IN_CHROMIUM,
    SharedFiles,
    begin,
    saved_replay,
    served,
    submit,
    text,
    write,
)

pytestmark = IN_CHROMIUM

RACE = """
    from dataclasses import dataclass
    from enum import Enum
    from pathlib import Path

    from entity_env import Game, Obs


    class Step(Enum):
        SHORT = 1
        LONG = 2


    @dataclass
    class Runner:
        x: float


    LENGTH = len((Path(__file__).parent / "lap #1 100%.txt").read_text())


    def play(agents, *, seed, bonus: int = 0):
        places = [float(bonus), 0.0]
        while max(places) < LENGTH:
            asked = [
                agent.act_async(Obs(x).entities([Runner(x)]), Step)
                for agent, x in zip(agents, places)
            ]
            for i, pending in enumerate(asked):
                step = pending.get()
                if step is None:
                    return
                places[i] += step.value
        for agent, x in zip(agents, places):
            agent.game_over(Obs(x).entities([Runner(x)]))


    race = Game(
        play, entities=[Runner], actions=[Step], num_agents=2, players="track.players:own"
    )
"""
OWN = """
    from entity_env.agents import GameAgents

    class Own(GameAgents):
        names = ("hare",)

        def load(self, name, seed):
            if name == "hare":
                from track.hare import Hare
                return Hare()

    own = Own()
"""
BOT = """
    from entity_env.agents import ScriptedAgent

    class {name}(ScriptedAgent):
        def choose(self, obs, step):
            return list(step)[{choice}]
"""


def put(folder: Path, **texts: str) -> None:
    folder.mkdir(parents=True)
    for name, content in texts.items():
        (folder / f"{name}.py").write_text(dedent(content))


def play_with(page: Chromium, *seats: str) -> None:
    """Begins an episode with these players, as fast as the browser can."""
    page.wait_for("config")
    page.value("document.getElementById('new').click(); frame = null")
    page.value(
        f"[...document.querySelectorAll('select')].forEach((s, i) => "
        f"s.value = {json.dumps(seats)}[i])"
    )
    page.value("document.querySelector('#speed input').value = 31")
    begin(page)


def test_a_package_with_odd_names_is_played_by_people_bots_and_its_own_agents(
    tmp_path: Path, profile: Path
) -> None:
    track = tmp_path / "mine é #1" / "track"
    put(track, __init__="", game=RACE, players=OWN, hare=BOT.format(name="Hare", choice=1))
    (track / "lap #1 100%.txt").write_text("12345")
    put(track / "a b", bot=BOT.format(name="Slow", choice=0))
    put(tmp_path / "other", game=BOT.format(name="Fast", choice=1))
    put(tmp_path / "more", game=BOT.format(name="Fast", choice=0))
    bots = [track / "a b" / "bot.py", f"{tmp_path / 'other' / 'game.py'}:Fast"]
    bots += [f"{tmp_path / 'more' / 'game.py'}:Fast"]
    agents = [word for each in ("hare", *bots) for word in ("--agent", str(each))]
    write(tmp_path / "site", str(track / "game.py"), *agents, "--set", "bonus=1")
    game = load_game(str(track / "game.py"), ["bonus=1"])
    with served(tmp_path / "site") as url, Chromium(f"{url}/", profile) as page:
        page.wait_for("config")
        players = dict(page.value("config.players"))
        assert players == {
            "hare": "hare",
            "track/a b/bot.py": "bot",
            "game.py:Fast": "Fast",
            "bots/2/game.py:Fast": "Fast-2",
            "random": "Random moves",
        }
        replays = []
        names = [name for name in players if name != "random"]
        for first, second in [*zip(names, names[::-1], strict=True), ("human", "human")]:
            play_with(page, first, second)
            while not page.wait_for("frame.asked && {over: frame.over}")["over"]:
                number = page.value("frame.asked.number")
                page.value("document.querySelector('#choices button').click()")
                page.wait_for(f"frame.asked?.number > {number}")
            assert text(page, "#failure") == ""
            replays.append(saved_replay(page))
        assert page.problems == []
    assert [replay.verify(game) for replay in replays] == [None] * 5
    # The first runner is one step ahead. Hare and `game.py` take long steps, the others short ones.
    rewards = [list(replay.rewards) for replay in replays]
    assert rewards == [[4, 2], [3, 6], [4, 2], [3, 6], [4, 4]]


def test_decisions_in_parts_with_every_mask_are_played_without_numpy(
    tmp_path: Path, profile: Path
) -> None:
    shutil.copy(ROOT / "tests" / "games" / "plain_games.py", tmp_path / "plain.py")
    page = (ROOT / "docs" / "how-to" / "questions.md").read_text()
    (tmp_path / "convoy.py").write_text(page[page.index("# convoy.py") :].partition("```")[0])
    for name in ("plain", "convoy"):
        write(tmp_path / "site" / name, str(tmp_path / f"{name}.py"))
    with served(tmp_path / "site") as url:
        for name in ("plain", "convoy"):
            with Chromium(f"{url}/{name}/", profile) as browser:
                play_with(browser, "random", "random")
                browser.wait_for("frame.over && frame.asked")
                assert text(browser, "#failure") == ""
                replay = saved_replay(browser)
                assert browser.problems == []
            assert replay.verify(load_game(str(tmp_path / f"{name}.py"), [])) is None


NO_NUMPY = "def __getattr__(name): return type(name, (), {})\n"


def add_packages(pyodide: Path, installed: Path, sources: Mapping[str, str]) -> None:
    """Adds packages, with their needs before a colon, to Pyodide and to a folder of this Python."""
    listed = {}
    for each, source in sources.items():
        name, *needs = each.split(":")
        module = name.replace("-", "_")
        (installed / module).mkdir(parents=True)
        (installed / module / "__init__.py").write_text(source)
        wheel = pyodide / (NUMPY.file if name == "numpy" else f"{module}-1.0-py3-none-any.whl")
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.write(installed / module / "__init__.py", f"{module}/__init__.py")
            archive.writestr(f"{module}-1.0.dist-info/METADATA", f"Name: {name}\nVersion: 1.0\n")
        listed[name] = {
            **{"name": name, "version": "1.0", "file_name": wheel.name, "install_dir": "site"},
            **{"imports": [module], "depends": needs, "package_type": "package"},
            "sha256": sha256(wheel.read_bytes()).hexdigest(),
        }
    lock = json.loads((pyodide / "pyodide-lock.json").read_text())
    (pyodide / "pyodide-lock.json").write_text(json.dumps({**lock, "packages": listed}))


def test_a_game_may_use_packages_of_the_pyodide_folder(
    tmp_path: Path, profile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two small packages stand in for numpy and what it needs."""
    copies, installed = tmp_path / "pyodide", tmp_path / "site-packages"
    shutil.copytree(cache_folder(), copies)
    used = {"small-sums:small-base": "from small_base import one\n", "small-base": "one = 1\n"}
    add_packages(copies, installed, {**used, "unused": "one = 1\n"})
    game = (ROOT / "examples" / "my_game.py").read_text()
    (tmp_path / "sums.py").write_text(
        game.replace("import random\n", "import random, small_sums\n")
    )
    monkeypatch.syspath_prepend(str(installed))
    write(tmp_path / "site", str(tmp_path / "sums.py"), "--pyodide", str(copies))
    wheels = {path.name.partition("-")[0] for path in (tmp_path / "site").rglob("*.whl")}
    assert wheels == {"small_sums", "small_base"}
    with served(tmp_path / "site") as url, Chromium(f"{url}/", profile) as page:
        begin(page)
        page.wait_for("frame.asked")
        assert page.problems == []


@pytest.mark.parametrize("needs_numpy", [True, False])
def test_numpy_is_loaded_from_the_server_only_if_the_game_needs_it(
    tmp_path: Path, profile: Path, needs_numpy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with `--pyodide cdn`; another server stands in for that one, and a class for numpy."""
    copies, wheels = tmp_path / "cdn", tmp_path / "wheels"
    shutil.copytree(cache_folder(), copies)
    add_packages(copies, tmp_path / "unused", {"numpy": NO_NUMPY})
    wheels.mkdir()
    (copies / NUMPY.file).rename(wheels / NUMPY.file)
    hashes = {name: sha384((copies / name).read_bytes()).digest() for name in FILES}
    texts = {name: f"sha384-{b64encode(each).decode()}" for name, each in hashes.items()}
    monkeypatch.setattr(pyodide, "_HASHES", texts)
    game = (ROOT / "examples" / "my_game.py").read_text()
    first = "import numpy\nassert numpy.ndarray\n" if needs_numpy else ""
    (tmp_path / "catch.py").write_text(game.replace("import random\n", f"import random\n{first}"))
    with served(copies, handler=SharedFiles) as cdn, served(wheels, handler=SharedFiles) as server:
        monkeypatch.setattr(pyodide, "_URL", f"{cdn}/")
        monkeypatch.setattr(pyodide, "WHEELS_URL", f"{server}/")
        write(tmp_path / "site", str(tmp_path / "catch.py"), "--pyodide", "cdn")
        assert (server in (tmp_path / "site" / "index.html").read_text()) == needs_numpy
        with served(tmp_path / "site") as url, Chromium(f"{url}/", profile) as page:
            begin(page)
            page.wait_for("frame.asked")
            assert page.problems == []


# ------------------------------------------------------------------ New game


def test_the_form_stays_while_agents_play_on_and_takes_keys(tmp_path: Path, profile: Path) -> None:
    shutil.copy(ROOT / "examples" / "my_game.py", tmp_path / "my_game.py")
    write(tmp_path / "site", str(tmp_path / "my_game.py"), "--edit")
    with served(tmp_path / "site") as url, Chromium(f"{url}/", profile) as page:
        page.wait_for("config && original")
        play_with(page, "random")
        page.value("document.getElementById('new').click()")
        page.value("take('frame', frame)")  # one that was on its way
        assert not page.value("document.body.classList.contains('begun')")
        play_with(page, "human")
        page.wait_for("frame.asked && !frame.over")
        number = page.value("frame.asked.number")
        page.value("document.getElementById('new').click()")
        page.value("document.getElementById('edit').open = true")
        page.value("source.focus(); source.setSelectionRange(0, 0)")
        for key in ("Enter", "1", "s"):
            page.press(key)
        assert page.value("source.value.startsWith('\\n1s')")
        assert page.value("frame.asked.number") == number


def test_a_slow_game_is_awaited_and_an_endless_one_replaced(tmp_path: Path, profile: Path) -> None:
    shutil.copy(ROOT / "examples" / "my_game.py", tmp_path / "my_game.py")
    write(tmp_path / "site", str(tmp_path / "my_game.py"), "--edit")
    with served(tmp_path / "site") as url, Chromium(f"{url}/", profile) as page:
        page.wait_for("config && original")
        page.value(
            "waitMs = 300; window.starts = 0; startWorker = (old => () => {"
            " window.starts++; old() })(startWorker)"
        )
        slow = page.value("original").replace(
            "import random", "import time; time.sleep(1)\nimport random", 1
        )
        page.value(f"source.value = {json.dumps(slow)}")
        begin(page)
        assert page.value("window.starts") == 1
        page.value("document.getElementById('new').click()")
        page.value("source.value = 'while True: pass\\n' + original")
        submit(page)
        page.wait_for("loading.textContent.startsWith('Starting')")
        page.value("source.value = original")
        begin(page)
        assert page.value("window.starts") == 2
        assert page.wait_for("frame.asked")


def test_each_finished_episode_is_sent(tmp_path: Path, profile: Path) -> None:
    lines: list[str] = []
    with ReplayCollector(games.snake, tmp_path / "kept", lines.append) as collector:
        write(tmp_path / "site", "snake", "--send", collector.url)
        with served(tmp_path / "site") as url, Chromium(f"{url}/", profile) as page:
            page.wait_for("config")
            page.value("document.querySelector('[name=send]').checked = true")
            play_with(page, "random")
            for _ in range(2):
                page.wait_for("frame.over && frame.asked && sent.textContent")
                page.value("sent.textContent = ''; document.getElementById('again').click()")
                page.wait_for("frame && (!frame.over || frame.asked?.number > 1)")
    assert len(lines) >= 2


def test_few_pictures_of_the_memory_are_kept(tmp_path: Path, profile: Path) -> None:
    write(tmp_path / "site", "snake")
    with served(tmp_path / "site") as url, Chromium(f"{url}/game.json", profile) as page:
        page.go(f"{url}/")
        page.value(
            "(async () => { const all = await caches.open('entity_env');"
            " for (const i of [1, 2, 3]) await all.put(`/old-${i}`, new Response('old')) })()"
        )
        begin(page)
        names = "caches.open('entity_env').then(all => all.keys()).then(all => all.map(r => r.url))"
        page.wait_for(f"{names}.then(all => all.some(url => url.includes('memory-')))")
        kept = page.value(names)
        assert len(kept) == 2
        assert kept[0].endswith("/old-3")


def test_titles_and_texts_are_only_text(tmp_path: Path, profile: Path) -> None:
    (tmp_path / "about.md").write_text(
        '<img src=x onerror="window.bad = 1"> @TITLE@ @POLICY@ [link](javascript:bad=1)\n\n'
        "<script>window.bad = 1</script>\n\n![x](http://127.0.0.1:9/x.png)\n"
    )
    title = "@ABOUT@ </title><script>window.bad = 1</script> @POLICY@"
    write(tmp_path / "site", "snake", "--title", title, "--about", str(tmp_path / "about.md"))
    with served(tmp_path / "site") as url, Chromium(f"{url}/", profile) as page:
        page.wait_for("config")
        assert text(page, "#name") == page.value("document.title") == title
        assert "@TITLE@ @POLICY@" in text(page, "#about")
        assert not page.value("document.querySelector('#about :is(a, script)')")
        assert not page.value("'bad' in window")
        begin(page)
        assert page.value("document.title") == title
