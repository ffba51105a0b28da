"""Every command in the folder of a stranger runs no code from it.

The folder has modules named like those of Python, of every installed package and of an installed
plug-in, settings, runs, replays and programs that name them, and a game that the user named here
before the folder changed.
"""

from __future__ import annotations

import gzip
import json
import os
import py_compile
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from entity_env.cli.app import COMMANDS
from entity_env.games.pixel.xo_chip.programs import program
from tests.cli.commands.test_replay import GAME, GOLDEN

TRAINED = ("--steps=64", "--num-envs=4", "--num-workers=1", "--eval-interval=0")
PLUGIN = "hostile_plugin"
REFUSED = "refused"
"""Marks a command line that has to end with exit code 2."""

LINES: Mapping[str, Sequence[tuple[str, ...]]] = {
    "bench": [("snake", "--num-envs=2", "--seconds=0.01"), (PLUGIN, "--seconds=0.01")],
    "capture-goal": [("maze.ch8", "--keys", "RIGHT*2", "--out", "goal2")],
    "check": [(PLUGIN, "--episodes=1"), ("../mine/own.py", "--episodes=1")],
    "clone": [("snake", "run", "--out", "c", REFUSED), ("dots", "see.replay", REFUSED)],
    "collect": [(PLUGIN, "--port=0", "--out", "games")],
    "dataset": [("run", "--out=d.npz", REFUSED), ("no-see.replay", "--out=d2.npz", REFUSED)],
    "doctor": [()],
    "draw": [
        *(("see.replay", "--out=r.html"), ("plugin.replay", "--out=r2.html")),
        *((f"{name}.replay", "--out=r.html", REFUSED) for name in ("changed", "toml", "gym")),
    ],
    "eval": [(PLUGIN, "--episodes=2", "--num-workers=1")],
    "export": [("run", "x.agent")],
    "games": [()],
    "new": [("brand_new_game",)],
    "page": [(PLUGIN, "--out=site", "--pyodide=cdn")],
    "play": [("snake", "--no-render"), (PLUGIN, "--no-render"), ("../mine/own.py", "--no-render")],
    "record": [(PLUGIN, "--out=p.replay"), ("../mine/own.py", "--out=o.replay")],
    "replay": [
        *(
            ("see.replay",),
            ("plugin.replay",),
            ("plugin.replay", "--take-over=1", "--out=t.replay"),
        ),
        *((f"{name}.replay", REFUSED) for name in ("changed", "toml", "link", "package")),
    ],
    "report": [("run", "--out=r3.html"), (".", "--out=r4.html")],
    "reproduce": [("run", "--out=again", REFUSED)],
    "runs": [(".",)],
    "sweep": [
        (
            "snake",
            "--vary=gamma=0.9,0.99",
            "--trials=1",
            "--steps=64",
            "--num-envs=4",
            "--jobs=1",
            "--out=sw",
        )
    ],
    "train": [
        ("--config=plugin.toml", *TRAINED, "--out=t1"),
        ("snake", *TRAINED, "--out=t2"),
        ("snake", *TRAINED, "--seeds=2", "--out=t3"),
        ("--config=s.toml", *TRAINED, "--out=t4", REFUSED),
        ("--resume", "--out=run", REFUSED),
    ],
    "verify": [
        ("plugin.replay",),
        *(
            (f"{name}.replay", REFUSED)
            for name in ("changed", "toml", "loop", "gym", "link", "package")
        ),
        # The folder of bytecode.py also has modules named like those that its game needs.
        *((f"{name}.replay", REFUSED) for name in ("bytecode", "module", "plugin-module")),
        ("compiled.replay", REFUSED),
    ],
    "watch": [("run", "--no-open")],
}
"""Command lines that name nothing of the folder's code. A new command needs an entry."""
SERVERS = ("collect", "watch")


def test_every_command_is_covered() -> None:
    assert LINES.keys() == COMMANDS.keys()


class Folder:
    """The folder of a stranger, `here`; `marks` has a file for everything that ran."""

    def __init__(self, root: Path) -> None:
        self.here, self.marks = root / "here", root / "marks"
        for folder in (self.here, self.marks, root / "mine", root / "site"):
            folder.mkdir(parents=True)
        self.environment = {
            **os.environ,
            "XDG_CONFIG_HOME": str(root / "config"),
            "PYTHONPATH": str(root / "site"),
            "HOME": str(root),
        }
        self._install(root / "site")
        (root / "mine" / "own.py").write_text(GAME)
        self._name_code()
        self._fill()

    def canary(self, name: str) -> str:
        """Code that leaves a mark, and works as a game."""
        return f"open({str(self.marks / name)!r}, 'w').close()\n{GAME}"

    def run(self, *words: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(Path(sysconfig.get_path("scripts"), "entity-env")), *words],
            cwd=folder or self.here,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def serve(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Runs a server until it has printed its address."""
        command = [str(Path(sysconfig.get_path("scripts"), "entity-env")), *words]
        pipe = subprocess.PIPE
        with subprocess.Popen(
            command, cwd=self.here, env=self.environment, stdout=pipe, stderr=pipe, text=True
        ) as process:
            assert process.stdout is not None
            line = next((line for line in process.stdout if "http://" in line), "")
            process.send_signal(signal.SIGINT)
            out, errors = process.communicate()
        return subprocess.CompletedProcess(words, process.returncode, line + out, errors)

    def _install(self, site: Path) -> None:
        """An installed package with a game, as by pip."""
        (site / PLUGIN).mkdir()
        (site / PLUGIN / "__init__.py").write_text("")
        (site / PLUGIN / "game.py").write_text(GAME)
        about = site / f"{PLUGIN}-1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {PLUGIN}\nVersion: 1.0\n")
        entry = f"[entity_env.games]\n{PLUGIN} = {PLUGIN}.game:dots\n"
        (about / "entry_points.txt").write_text(entry)

    def _name_code(self) -> None:
        """The user names code that is harmless so far."""
        here = self.here
        helped = GAME.replace("def play", "from helper import X\n\ndef play")
        (here / "helper.py").write_text("X = 1\n")
        for name in ("changed", "compiled"):
            (here / f"{name}.py").write_text(helped)
        (here / "bytecode.py").write_text(GAME)
        (here / "inner").mkdir()
        (here / "inner" / "rules.py").write_text(GAME)
        (here / "link.py").symlink_to("inner/rules.py")
        (here / "package").mkdir()
        (here / "package" / "__init__.py").write_text("from package.rules import dots\n")
        (here / "package" / "rules.py").write_text(GAME)
        for name in ("changed", "compiled", "bytecode", "link", "package"):
            place = name if name == "package" else f"{name}.py"
            done = self.run("record", place, "--no-see", "--out", f"../{name}.replay")
            assert done.returncode == 0, done.stderr
        assert self.run("record", PLUGIN, "--out", "../see.replay").returncode == 0
        done = self.run("record", PLUGIN, "--no-see", "--out", "../no-see.replay")
        assert done.returncode == 0, done.stderr

    def _fill(self) -> None:
        """The stranger changes the folder, and adds everything that could run."""
        here = self.here
        taken = {*sys.stdlib_module_names, *packages_distributions(), PLUGIN, "entity_env"}
        taken |= {"sitecustomize", "usercustomize", "conftest", "setup", "helper", "snake", "games"}
        for name in taken:
            (here / f"{name}.py").write_text(self.canary(f"{name}.py"))
        for name in ("torch", "numpy", "json", "numba", "greenlet", "multiprocessing", PLUGIN):
            (here / name).mkdir()
            (here / name / "__init__.py").write_text(self.canary(f"{name}.init"))
            (here / name / "game.py").write_text(self.canary(f"{name}.game"))
        (here / "helper.so").write_bytes(b"\x7fELF")
        for name in ("changed", "bytecode", "link", "package"):
            (here / f"{name}_look.py").write_text(self.canary(f"{name}_look"))
        (here / "compiled_helper.py").write_text(self.canary("compiled_helper"))
        cache = here / "__pycache__"
        cache.mkdir(exist_ok=True)
        for name in ("bytecode", "helper", "changed", "plugin"):
            py_compile.compile(
                str(here / "compiled_helper.py"),
                str(cache / f"{name}.{sys.implementation.cache_tag}.pyc"),
                doraise=True,
                invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
            )
        (here / "package" / "rules.py").write_text(self.canary("package.rules"))
        (here / "link.py").unlink()
        (here / "other.py").write_text(self.canary("other"))
        (here / "link.py").symlink_to("other.py")
        (here / "program.sh").write_text(f"touch {self.marks / 'program'}\n")
        (here / "x.toml").write_text('command = ["sh", "program.sh", "big"]\n')
        with open(here / "big", "wb") as file:
            file.truncate(1 << 36)  # without blocks on the disk
        (here / "loop.toml").symlink_to("loop.toml")
        (here / "maze.ch8").write_bytes(program("maze"))
        self._write_files()

    def _write_files(self) -> None:
        """Replays, a run and settings that name code."""
        here, up = self.here, self.here.parent
        for name in ("changed", "compiled", "bytecode", "link", "package", "see", "no-see"):
            shutil.move(up / f"{name}.replay", here / f"{name}.replay")
        sources = {
            "plugin": PLUGIN,
            "plugin-module": f"{PLUGIN}.game:dots",
            "module": "torch.game:dots",
            "toml": "x.toml",
            "loop": "loop.toml",
            "gym": "gymnasium:json:X-v0",
            "bytecode": "bytecode.py:dots",
            "package": "package",
        }
        for name, source in sources.items():
            rewrite(here / "no-see.replay", here / f"{name}.replay", source)
        for name in ("changed", "compiled", "link"):  # other files than those recorded here
            rewrite(here / f"{name}.replay", here / f"{name}.replay", f"{name}.py:dots")
        run = here / "run"
        (run / "replays").mkdir(parents=True)
        shutil.copytree(GOLDEN.parent / "corpus" / "good" / "checkpoint", run / "checkpoint")
        for name in ("see", "changed", "toml", "module"):
            shutil.copy(here / f"{name}.replay", run / "replays" / f"{name}.replay")
        (run / "replays" / "loop.replay").symlink_to("loop.replay")
        os.mkfifo(run / "replays" / "pipe.replay")
        options = {"callback": ["other.py:C"], "opponent": ["other.py:Bot"]}
        about = {"format": "entity_env.run", "game": "changed.py", "game_name": "dots"}
        text = json.dumps({**about, "config": {}, "settings": {}, "options": options})
        (run / "run.json").write_text(text)
        (run / "curves.jsonl").write_text('{"step":1,"episode/mean_reward":1}\n')
        (here / "plugin.toml").write_text(f'[run]\ngame = "{PLUGIN}"\n')
        (here / "s.toml").write_text('[run]\ngame = "changed.py"\ncallback = ["other.py:C"]\n')


def rewrite(path: Path, to: Path, source: str) -> None:
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    lines[0] = json.dumps({**json.loads(lines[0]), "source": source})
    to.write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode()))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    return Folder(tmp_path_factory.mktemp("hostile"))


@pytest.mark.slow  # every command line is a program
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("command", "words"),
    [
        pytest.param(command, words, id=" ".join((command, *words)))
        for command, lines in LINES.items()
        for words in lines
    ],
)
def test_nothing_of_the_folder_runs(folder: Folder, command: str, words: tuple[str, ...]) -> None:
    for module in ("torch", "gymnasium"):
        pytest.importorskip(module)
    given = tuple(word for word in words if word != REFUSED)
    done = (folder.serve if command in SERVERS else folder.run)(command, *given)
    assert sorted(each.name for each in folder.marks.iterdir()) == [], done.stderr
    assert "Traceback" not in done.stderr
    is_refused = REFUSED in words
    assert done.returncode == (2 if is_refused else 0), done.stdout + done.stderr
    if is_refused:
        assert len(done.stderr.strip().splitlines()) <= 2, done.stderr
