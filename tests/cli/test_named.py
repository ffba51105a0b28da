"""Files are data: names in them are not imported or opened unless the user has named them."""

import functools
import gzip
import json
import os
import py_compile
import re
import shutil
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from entity_env.authoring.named_code.finder import named_code
from entity_env.cli import main
from entity_env.cli.app import command_of
from entity_env.cli.browser.watch import RunPage
from entity_env.cli.named import remember, was_named
from entity_env.cli.run_settings import RunParser
from entity_env.core.files import MAX_CODE_BYTES
from entity_env.errors import ReplayError
from entity_env.games import snake
from entity_env.games.pixel.play import pixel_rom
from entity_env.replay import Replay
from entity_env.vec.external.game import program_code
from tests.cli.browser.page import request
from tests.cli.commands.test_replay import GAME, GOLDEN

CANARY = "open(__file__ + '.ran', 'w').close()\n"
CALLBACK = f"{CANARY}from entity_env.agents.ppo import Callback\nclass C(Callback): pass\n"
BOT = f"{CANARY}class Bot:\n    def choose(self, *args): return None\n"
SMALL = ("--steps=64", "--num-envs=4", "--num-workers=0", "--eval-interval=0")
# More cases of a rule that a fast case covers; each verifies a replay in a new process.
also = functools.partial(pytest.param, marks=pytest.mark.slow)


def run(*args: str | Path) -> Result:
    return CliRunner().invoke(main, list(map(str, args)))


def forget() -> None:
    """Forgets all names, as on another machine."""
    shutil.rmtree(click.get_app_dir("entity-env"), ignore_errors=True)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder; what is imported from it is not found by later tests."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    for name in ("folders", "searched"):
        monkeypatch.setattr(named_code(), name, [])
    return tmp_path


def has_run(folder: Path) -> list[str]:
    """Files whose code has run."""
    return sorted(path.name.removesuffix(".ran") for path in folder.rglob("*.ran"))


def changed(path: Path, to: Path, **header: object) -> Path:
    """A copy of a replay with a changed header."""
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    lines[0] = json.dumps({**json.loads(lines[0]), **header})
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode()))
    return to


class TestRecord:
    @pytest.mark.parametrize("name", ["gymnasium:CartPole-v1", "dots quirks=\ud800", "x\ny"])
    def test_words_are_remembered(self, name: str) -> None:
        assert not was_named(name)
        remember(name)
        assert was_named(name)
        assert not was_named(f"{name} ")

    def test_a_file_counts_while_it_stays_the_same(self, here: Path) -> None:
        path = here / "a.py"
        path.write_text("x = 1")
        remember(Path("a.py"))
        assert was_named(path)
        path.write_text("x = 2")
        assert not was_named(path)
        remember(path)
        assert was_named(path)
        path.unlink()
        assert not was_named(path)

    def test_a_path_is_no_words_and_words_are_no_path(self, here: Path) -> None:
        (here / "a.py").write_text("x = 1")
        remember("a.py")
        remember(str(here / "a.py"))
        assert not was_named(here / "a.py")

    @pytest.mark.parametrize("inner", ["units/kinds.py", "board.py", "__init__.py"])
    def test_a_package_counts_with_all_its_modules(self, here: Path, inner: str) -> None:
        package = here / "mygame"
        (package / "units").mkdir(parents=True)
        for name in ("__init__.py", "board.py", "units/kinds.py"):
            (package / name).write_text("x = 1")
        remember(package)
        assert was_named(package)
        (package / inner).write_text("x = 2")
        assert not was_named(package)

    def test_what_is_no_file_is_not_recorded(self, here: Path) -> None:
        (here / "loop").symlink_to("loop")
        os.mkfifo(here / "fifo")
        for path in (here / "none", here / "loop", here / "fifo", Path("a\0b"), Path("x" * 5000)):
            remember(path)
            assert not was_named(path)

    def test_without_a_place_to_record_everything_has_to_be_named_again(
        self, here: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (here / "file").write_text("")
        monkeypatch.setenv("XDG_CONFIG_HOME", str(here / "file"))
        remember("words")
        assert not was_named("words")


class TestReplays:
    @pytest.fixture
    def stranger(self, here: Path) -> Path:
        """Another person's run folder, with a Python file, below the current folder."""
        (here / "mine.py").write_text(GAME)
        for see in ("see", "no-see"):
            assert run("record", "mine.py", f"--{see}", "--out", f"{see}.replay").exit_code == 0
        forget()
        folder = here / "stranger"
        for place in ("replays", "failures"):
            for i, see in enumerate(("see", "no-see")):
                path = folder / place / f"step-{i}.replay"
                changed(here / f"{see}.replay", path, source="stranger/helper.py:dots")
        (folder / "helper.py").write_text(CANARY + GAME)
        (folder / "helper_look.py").write_text(CANARY)
        about = {"format": "entity_env.run", "game": "stranger/helper.py", "game_name": "dots"}
        (folder / "run.json").write_text(json.dumps({**about, "config": {}, "settings": {}}))
        (folder / "curves.jsonl").write_text('{"step":1,"episode/mean_reward":1}\n')
        return folder

    @pytest.mark.parametrize(
        "command",
        [
            ("report", "stranger", "--out", "r.html"),
            ("report", ".", "--out", "r.html"),
            ("draw", "stranger/replays/step-0.replay", "--out", "r.html"),
            ("draw", "stranger/replays/step-1.replay", "--out", "r.html"),
            ("replay", "stranger/replays/step-0.replay"),
            ("replay", "stranger/replays/step-1.replay"),
            ("replay", "stranger/replays/step-1.replay", "--take-over", "1"),
            ("replay", "stranger/replays/step-1.replay", "--debug", "1"),
            ("verify", "stranger/replays/step-0.replay"),
            ("verify", "stranger/replays/step-1.replay"),
            ("dataset", "stranger", "--out", "r.npz"),
            ("clone", "snake", "stranger", "--out", "r"),
        ],
        ids=" ".join,
    )
    def test_their_code_does_not_run(self, stranger: Path, command: tuple[str, ...]) -> None:
        result = run(*command)
        assert has_run(stranger) == []
        assert result.exception is None or isinstance(result.exception, SystemExit)
        if "step-1" in " ".join(command):
            assert result.exit_code == 2
            assert "stranger/helper.py:dots, which you have not named here before" in result.stderr
            assert "--game stranger/helper.py:dots" in result.stderr

    def test_nor_when_their_run_is_watched(self, stranger: Path) -> None:
        page = RunPage([stranger])
        with page.server:
            for name, path in page._files.items():
                status, _, text = request(page.server.url + name)
                assert status == (200 if path.name == "step-0.replay" else 422), text
        assert has_run(stranger) == []

    @pytest.mark.parametrize("source", ["stranger.helper:dots", "./stranger/helper.py:dots"])
    def test_nor_by_other_names(self, stranger: Path, source: str) -> None:
        path = changed(stranger.parent / "no-see.replay", stranger / "x.replay", source=source)
        assert "which you have not named here before" in run("verify", path).stderr
        assert has_run(stranger) == []

    @pytest.mark.parametrize("source", ["", "entity_env.", "entity_env.__main__:main", "os:x"])
    def test_nor_modules_that_are_no_games(self, stranger: Path, source: str) -> None:
        path = changed(stranger.parent / "no-see.replay", stranger / "x.replay", source=source)
        assert "which is not here: add --game" in run("verify", path).stderr
        with pytest.raises(ReplayError, match="which is not imported: pass the game"):
            Replay.load(path).turns()

    def test_what_was_seen_is_drawn_without_the_game(self, stranger: Path) -> None:
        result = run("draw", stranger / "replays" / "step-0.replay", "--out", "r.html")
        assert result.exit_code == 0, result.output
        assert "drawn without its game, so without its look" in result.stderr
        assert Path("r.html").exists()

    @pytest.mark.slow
    def test_named_on_this_command_line_it_runs(self, stranger: Path) -> None:
        path = stranger / "replays" / "step-1.replay"
        result = run("verify", path, "--game", "stranger/helper.py:dots")
        assert "same, 5 decisions" in result.output
        assert has_run(stranger) == ["helper.py"]

    def test_named_for_a_report_it_draws(self, stranger: Path) -> None:
        result = run("report", "stranger", "--out", "r.html", "--game", "stranger/helper.py:dots")
        assert result.exit_code != 2
        assert has_run(stranger) == ["helper.py", "helper_look.py"]

    @pytest.mark.slow
    def test_named_before_it_runs_until_it_changes(self, stranger: Path) -> None:
        path = stranger / "replays" / "step-1.replay"
        assert run("check", "stranger/helper.py").exit_code == 0
        assert run("verify", path).exit_code == 0
        (stranger / "helper.py").write_text(CANARY + GAME + "\n")
        (stranger / "helper.py.ran").unlink()
        assert "or which has changed since" in run("verify", path).stderr
        assert has_run(stranger) == []

    def test_a_replay_recorded_here_plays_after_the_game_changed(self, here: Path) -> None:
        (here / "mine.py").write_text(GAME)
        assert run("record", "mine.py", "--out", "x.replay").exit_code == 0
        (here / "mine.py").write_text(GAME + "\n")
        assert run("verify", "x.replay").exit_code == 0

    @pytest.mark.slow
    def test_one_recorded_here_does_not_name_another_file_elsewhere(
        self, stranger: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The stranger's folder also has a file called `mine.py`."""
        given = ("train", "mine.py", *SMALL, "--replays=1", "--out=run")
        assert run("record", "mine.py", "--no-see", "--out", "x.replay").exit_code == 0
        assert run(*given).exit_code == 0
        (stranger / "mine.py").write_text(CANARY + GAME)
        (stranger / "mine_look.py").write_text(CANARY)
        monkeypatch.chdir(stranger)
        refused = run("verify", "../x.replay").stderr
        assert "which you have not named here before" in refused
        assert f"--game mine.py:dots would run the file {stranger / 'mine.py'}." in refused
        again = run("train", "--resume", "--out=../run", "--steps=96")
        assert f"'mine.py', which is {stranger / 'mine.py'}: " in again.stderr
        assert "add to the command: mine.py" in again.stderr
        run("report", "../run", "--out", "r.html")
        assert has_run(stranger) == []

    @pytest.mark.slow
    @pytest.mark.parametrize("typed", ["home1", "home2/start.py", "home3.start"])
    def test_one_recorded_here_plays_where_the_game_is_defined_in_another_file(
        self, here: Path, typed: str
    ) -> None:
        """The named file imports the game; the replay names the file that defines it."""
        package = here / typed[:5]
        package.mkdir()
        (package / "rules.py").write_text(GAME)
        for name in ("__init__.py", "start.py"):
            (package / name).write_text(f"from {package.name}.rules import dots")
        assert run("record", typed, "--no-see", "--out", "x.replay").exit_code == 0
        assert run("verify", "x.replay").exit_code == 0
        (package / "rules.py").write_text(GAME + "\n")
        assert run("verify", "x.replay").exit_code == 0

    @pytest.mark.parametrize("file", [also("__init__.py"), "__init__.pyc"])
    def test_an_installed_module_that_was_named_is_not_hidden_by_another_one(
        self, here: Path, monkeypatch: pytest.MonkeyPatch, file: str
    ) -> None:
        name = f"hidden_game_{file[-1]}"
        package = here / "site" / name
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("")
        (package / "start.py").write_text(GAME)
        monkeypatch.syspath_prepend(str(here / "site"))
        given = ("record", f"{name}.start:dots", "--no-see", "--out", "x.replay")
        assert run(*given).exit_code == 0
        assert run("verify", "x.replay").exit_code == 0
        own = here / "stranger" / name
        own.mkdir(parents=True)
        (own / "code.py").write_text(CANARY)
        py_compile.compile(str(own / "code.py"), str(own / "__init__.pyc"), doraise=True)
        (own / "code.py").rename(own / "__init__.py")
        for other in {"__init__.py", "__init__.pyc"} - {file}:
            (own / other).unlink()
        for module in [each for each in sys.modules if each.startswith(name)]:
            del sys.modules[module]
        monkeypatch.chdir(here / "stranger")
        assert run("verify", "../x.replay").exit_code == 0
        assert run("play", f"{name}.start:dots", "--no-render").exit_code == 0
        assert has_run(here) == []
        (own / "start.py").write_text(CANARY + GAME)
        for command in ("verify", "../x.replay"), ("play", f"{name}.start:dots", "--no-render"):
            refusal = run(*command)
            assert f"give its path, {name}/start.py" in refusal.output
        assert has_run(here) == []

    @pytest.mark.slow
    def test_an_environment_has_to_be_named(self, here: Path) -> None:
        pytest.importorskip("gymnasium")
        out = here / "x.replay"
        given = ("record", "gymnasium:CartPole-v1", "--set", "sutton_barto_reward=True")
        assert run(*given, "--out", out).exit_code == 0
        assert run("verify", out).exit_code == 0
        forget()
        refusal = run("verify", out)
        assert "--game gymnasium:CartPole-v1" in refusal.stderr
        refusal = run("verify", out, "--game", "gymnasium:CartPole-v1")
        assert "--set sutton_barto_reward=True" in refusal.stderr
        assert refusal.exit_code == 2
        setting = ("--set", "sutton_barto_reward=True")
        assert run("verify", out, "--game", "gymnasium:CartPole-v1", *setting).exit_code == 0

    def test_an_environment_of_a_module_of_theirs_is_not_imported(self, here: Path) -> None:
        (here / "helper.py").write_text(CANARY)
        path = changed(GOLDEN / "snake.replay", here / "x.replay", source="gymnasium:helper:X-v0")
        assert "--game gymnasium:helper:X-v0" in run("verify", path).stderr
        assert has_run(here) == []

    @pytest.mark.parametrize("command", [("verify",), ("draw", "--out=r.html"), ("replay",)])
    @pytest.mark.parametrize("name", ["goal", also("rom")])
    def test_settings_open_no_path(self, here: Path, command: tuple[str, ...], name: str) -> None:
        pytest.importorskip("torch")
        (here / "evil.gb").write_bytes(bytes(1 << 15))
        lines = {"game": "pixel", "source": "", "settings": {name: "evil.gb"}}
        path = changed(GOLDEN / "pixel_maze.replay", here / "x.replay", **lines)
        result = run(command[0], path, *command[1:])
        assert result.exit_code in (0, 2)
        if result.exit_code:
            assert f"was played with {name}='evil.gb', which a file may not choose" in result.stderr
            assert f"--set {name}='evil.gb'" in result.stderr
        assert "PyBoy" not in result.output

    @pytest.mark.slow
    def test_a_setting_counts_for_the_file_that_was_named(self, here: Path) -> None:
        """A different cartridge with the same name is not the named one."""
        game = GAME.replace("length: int = 5", "level: str = 'one', length: int = 5")
        (here / "mine.py").write_text(game)
        (here / "level.txt").write_text("one")
        given = ("record", "mine.py", "--set", "level=level.txt", "--out", "a.replay")
        assert run(*given).exit_code == 0
        changed(here / "a.replay", here / "b.replay")
        assert run("verify", "b.replay").exit_code == 0
        (here / "level.txt").write_text("another")
        assert "--set level='level.txt'" in run("verify", "b.replay").stderr
        assert run("verify", "b.replay", "--set", "level=level.txt").exit_code == 0
        changed(here / "a.replay", here / "c.replay", settings={"level": "/etc/passwd"})
        assert "--set level='/etc/passwd'" in run("verify", "c.replay").stderr

    def test_numbers_and_listed_choices_are_data(self) -> None:
        assert snake.open_settings({"board_size": 3}) == {}
        assert snake.open_settings({"board_size": "3"}) == {}
        assert list(pixel_rom.open_settings({"rom": "x.gb", "quirks": "xochip"})) == ["rom"]


class TestSettings:
    @pytest.fixture
    def stranger(self, here: Path) -> Path:
        folder = here / "stranger"
        folder.mkdir()
        (folder / "helper.py").write_text(CANARY + GAME)
        (folder / "cb.py").write_text(CALLBACK)
        (folder / "bot.py").write_text(BOT)
        return folder

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ('game = "stranger/helper.py"', "stranger/helper.py"),
            ('game = "stranger.helper:dots"', "stranger.helper:dots"),
            ('game = "gymnasium:stranger.helper:X-v0"', "gymnasium:stranger.helper:X-v0"),
            ('game = "snake"\ncallback = ["stranger/cb.py:C"]', "--callback stranger/cb.py:C"),
            ('game = "tic_tac_toe"\nopponent = "stranger/bot.py:Bot"', "--opponent stranger/bot"),
            ('game = "tic_tac_toe"\nopponent = ["a.zip/x.agent=0.5"]', "--opponent a.zip/x.agent"),
            ('game = "tic_tac_toe"\neval_opponent = "stranger/bot.py"', "--eval-opponent stranger"),
            ('game = "snake"\ninit_from = "stranger"', "--init-from stranger"),
            ('game = "snake"\nout = "/tmp/elsewhere"', "--out /tmp/elsewhere"),
            ('game = "snake"\nfailures = "../elsewhere"', "--failures ../elsewhere"),
            ('game = "snake"\nray = "ray://10.0.0.1:1"', "--ray ray://10.0.0.1:1"),
            ('game = "pixel"\n[game]\nrom = "evil.gb"', "--set rom=evil.gb"),
        ],
    )
    @pytest.mark.parametrize("form", ["toml", "json", "resume"])
    def test_a_file_names_nothing(self, stranger: Path, text: str, words: str, form: str) -> None:
        pytest.importorskip("torch")
        data = tomllib.loads(f"[run]\n{text}")
        if form == "toml":
            (stranger / "s.toml").write_text(f"[run]\n{text}\n")
            result = run("train", "--config", "stranger/s.toml", *SMALL)
        else:
            options = data["run"]
            game = options.pop("game")
            options["set"] = [f"{key}={value}" for key, value in data.get("game", {}).items()]
            about = {"format": "entity_env.run", "game": game, "options": options}
            (stranger / "run.json").write_text(json.dumps(about))
            given = ("--resume", "--out", "stranger")
            if form == "json":
                given = ("--config", "stranger/run.json", "--out=x")
            result = run("train", *given, *SMALL)
        assert has_run(stranger) == []
        if form != "toml" and re.match("--out|--init-from", words):
            return  # either named or omitted
        assert result.exit_code == 2, result.output
        assert "are used only if you have named them here before" in result.stderr
        assert words in result.stderr
        assert result.stderr.count("\n") == 1

    def test_code_that_is_not_here_has_to_be_found(self, stranger: Path) -> None:
        about = {"format": "entity_env.run", "game": "mine.py", "options": {}}
        (stranger / "run.json").write_text(json.dumps(about))
        result = run("train", "--resume", "--out", "stranger", *SMALL)
        assert "game: no file 'mine.py' here: name it, path/to/FILE.py" in result.stderr

    def test_opponents_of_a_run_are_named(self, stranger: Path) -> None:
        about = {"format": "entity_env.run", "game": "tic_tac_toe", "options": {}}
        about["opponents"] = {"stranger/bot.py:Bot": 1.0, "self": 0.5}
        (stranger / "run.json").write_text(json.dumps(about))
        result = run("train", "--resume", "--out", "stranger", *SMALL)
        assert "--opponent stranger/bot.py:Bot" in result.stderr
        assert has_run(stranger) == []

    @pytest.mark.slow
    @pytest.mark.parametrize("folder", ["x=run", "self=1", "random=0.5"])
    def test_a_name_with_a_share_in_it_is_a_name(self, here: Path, folder: str) -> None:
        pytest.importorskip("torch")
        given = ("train", "tic_tac_toe", *SMALL, "--out", folder)
        assert run(*given).exit_code == 0
        forget()
        (here / folder / "bot.py").write_text(BOT)
        path = here / folder / "run.json"
        about = json.loads(path.read_text())
        path.write_text(json.dumps({**about, "opponents": {f"{folder}/bot.py:Bot": 1.0}}))
        refusal = run("train", "--resume", "--out", folder, "--steps=96").stderr
        assert f"--opponent {folder}/bot.py:Bot" in refusal
        assert has_run(here) == []

    @pytest.mark.slow
    def test_what_was_typed_once_is_named_later(self, stranger: Path) -> None:
        pytest.importorskip("torch")
        config = stranger / "s.toml"
        config.write_text('[run]\ngame = "stranger/helper.py"\ncallback = ["stranger/cb.py:C"]\n')
        given = ("train", "--config", config, *SMALL)
        typed = ("stranger/helper.py", "--callback", "stranger/cb.py:C")
        assert run(*given[:3], *typed, *SMALL, "--out=a").exit_code == 0
        assert run(*given, "--out=b").exit_code == 0
        (stranger / "helper.py").write_text(GAME + "\n")  # the file that imports it is unchanged
        assert run(*given, "--out=c").exit_code == 0
        config.write_text(config.read_text() + "num_envs = 2\n")
        assert run(*given, "--out=d").exit_code == 0
        config.write_text(config.read_text() + "num_workers = 0\n")
        (stranger / "helper.py").write_text(GAME + "\n\n")
        assert "stranger/helper.py" in run(*given, "--out=e").stderr

    @pytest.mark.slow
    def test_a_run_trained_here_goes_on_after_its_game_changed(self, stranger: Path) -> None:
        pytest.importorskip("torch")
        given = ("--callback", "stranger/cb.py:C", "--set", "length=3", "--replays=1")
        result = run("train", "stranger/helper.py", *given, *SMALL, "--out=a")
        assert result.exit_code == 0, result.output
        (stranger / "helper.py").write_text(GAME + "\n")
        (stranger / "cb.py").write_text(CALLBACK + "\n")
        again = run("train", "--resume", "--out=a", "--steps=96")
        assert again.exit_code == 0, again.output
        (stranger / "helper.py").write_text(CANARY + GAME)
        (stranger / "helper.py.ran").unlink()
        assert run("report", "a", "--out", "r.html").exit_code == 0

    @pytest.mark.slow
    def test_a_run_moved_here_from_elsewhere_names_nothing(self, stranger: Path) -> None:
        pytest.importorskip("torch")
        assert run("train", "stranger/helper.py", *SMALL, "--out=a").exit_code == 0
        shutil.copytree("a", "b")
        (stranger / "helper.py").write_text(GAME + "\n")
        refusal = run("train", "--resume", "--out=b", "--steps=96").stderr
        assert "add to the command: stranger/helper.py" in refusal
        given = ("train", "stranger/helper.py", "--resume", "--out=b", "--steps=96")
        assert run(*given).exit_code == 0

    def test_every_option_of_text_needs_a_name_by_default(self) -> None:
        """A new option that takes any text cannot be missed."""
        from entity_env.cli.run_settings import _named_by

        command = command_of("train")
        assert isinstance(command, RunParser)
        words = "odd/words.py"
        unnamed = {
            param.name
            for param in command.params
            if isinstance(param.type, click.types.StringParamType)
            and _named_by((param.name or ""), param.type, words) is None
        }
        assert unnamed == set()


BOMBS: dict[str, Callable[[], dict[str, object]]] = {
    "cherry_pick": lambda: {"num_good": 10**8},
    "snake": lambda: {"board_size": 30_000},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BOMBS)
@pytest.mark.parametrize("command", ["verify", "draw", "replay", "dataset", "report"])
def test_a_small_file_takes_bounded_time_and_memory(here: Path, name: str, command: str) -> None:
    replay = Replay.load(GOLDEN / f"{name}.replay")
    lines = [line for line in replay.lines if line.end is None][:1]
    header = replay.header.__class__(**{**vars(replay.header), "settings": BOMBS[name]()})
    bare = [type(line)(line.agent_id, line.step, line.actions) for line in lines]
    folder = here / "run" / "replays"
    folder.mkdir(parents=True)
    Replay(header, bare).save(folder / "step-1.replay")
    (here / "run" / "run.json").write_text('{"format": "entity_env.run", "config": {}}')
    (here / "run" / "curves.jsonl").write_text('{"step":1,"episode/mean_reward":1}\n')
    given = (folder / "step-1.replay",) if command != "report" else (here / "run",)
    out = {"draw": ("--out=x.html",), "dataset": ("--out=x.npz",), "report": ("--out=x.html",)}
    limits = ("--step-timeout=1", "--max-memory=1")
    result = run(command, *given, *out.get(command, ()), *limits)
    assert result.exit_code in (1, 2)
    assert re.search("no answer for 1 s|MemoryError", result.output)


@pytest.mark.slow
def test_a_game_that_hangs_in_c_is_ended_with_its_process(here: Path) -> None:
    hanging = GAME.replace("    rng, x =", "    if length > 9: sum(range(10**15))\n    rng, x =")
    (here / "mine.py").write_text(hanging)
    assert run("record", "mine.py", "--no-see", "--out", "a.replay").exit_code == 0
    changed(here / "a.replay", here / "b.replay", settings={"length": 10})
    result = run("draw", "b.replay", "--out", "x.html", "--timeout=2")
    assert "playing took longer than 2 s" in result.stderr


class TestFiles:
    """Only what was digested runs: the files that named code imports, from their sources."""

    @pytest.fixture
    def replay(self, here: Path) -> Path:
        """A replay from elsewhere, of a named game with a helper."""
        for name in ("lib_helper", "mine"):  # of another test
            sys.modules.pop(name, None)
        (here / "lib").mkdir()
        game = GAME.replace("def play", "from lib_helper import X\nimport fractions\n\ndef play")
        (here / "lib" / "mine.py").write_text(game)
        (here / "lib" / "lib_helper.py").write_text("X = 1\n")
        assert run("record", "lib/mine.py", "--no-see", "--out", "a.replay").exit_code == 0
        path = changed(here / "a.replay", here / "b.replay")
        result = run("verify", path)
        assert result.exit_code == 0, result.output
        return path

    @pytest.mark.parametrize("file", [also("mine.py"), also("lib_helper.py"), "fractions.py"])
    def test_bytecode_beside_a_source_does_not_run(
        self, here: Path, replay: Path, file: str
    ) -> None:
        """Also if it is that of another file, and Python would not compare it with the source."""
        evil, cache = here / "evil.py", here / "lib" / "__pycache__"
        evil.write_text(CANARY + GAME)
        cache.mkdir(exist_ok=True)
        py_compile.compile(
            str(evil),
            str(cache / f"{file[:-3]}.{sys.implementation.cache_tag}.pyc"),
            doraise=True,
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )
        assert run("verify", replay).exit_code == 0
        assert has_run(here) == []

    @pytest.mark.parametrize(
        "file", [also("lib_helper.py"), "fractions.py", also("lib_helper/__init__.py")]
    )
    def test_new_and_changed_modules_do_not_run(self, here: Path, replay: Path, file: str) -> None:
        path = here / "lib" / file
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"X = 1\n{CANARY}")
        refusal = run("verify", replay)
        assert refusal.exit_code == 2
        assert f"{file} is new or has changed since you named" in refusal.output
        assert has_run(here) == []

    @pytest.mark.parametrize("kind", ["pyc", also("so")])
    def test_nor_compiled_ones(self, here: Path, replay: Path, kind: str) -> None:
        path = here / "lib" / "lib_helper.so"
        path.write_bytes(b"\x7fELF")
        if kind == "pyc":
            path.unlink()
            (here / "lib" / "lib_helper.py").write_text(CANARY)
            path = here / "lib" / "lib_helper.pyc"
            py_compile.compile(str(here / "lib" / "lib_helper.py"), str(path), doraise=True)
            (here / "lib" / "lib_helper.py").unlink()
        assert f"{path.name} is new or has changed since you named" in run("verify", replay).output
        assert has_run(here) == []

    def test_nor_what_numba_has_compiled(self, here: Path, replay: Path) -> None:
        (here / "lib" / "__pycache__").mkdir(exist_ok=True)
        (here / "lib" / "__pycache__" / "mine.play-5.py311.nbi").write_text("a pickle")
        assert "has compiled code of numba in" in run("verify", replay).output

    def test_named_again_they_run(self, here: Path, replay: Path) -> None:
        (here / "lib" / "lib_helper.py").write_text(f"X = 1\n{CANARY}")
        assert run("verify", replay, "--game", "lib/mine.py").exit_code == 0
        assert has_run(here) == ["lib_helper.py"]

    @pytest.mark.parametrize("inside", ["inner/rules.py", "inner/rules.pyc", "native.so"])
    def test_a_package_counts_with_links_and_compiled_modules(
        self, here: Path, inside: str
    ) -> None:
        package = here / "mygame"
        for folder in (package, here / "elsewhere"):
            folder.mkdir()
            (folder / "__init__.py").write_text("")
        (package / "inner").symlink_to(here / "elsewhere")
        (package / "around").symlink_to(package)
        remember(package)
        assert was_named(package)
        (package / inside).write_text("x = 1")
        assert not was_named(package)


@pytest.mark.parametrize("command", [("verify",), ("draw", "--out=x.html"), ("dataset", "--out=x")])
def test_a_program_of_a_stranger_is_not_even_opened(
    here: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    """Neither the file that names a command, nor the files that the command names."""
    opened = []
    monkeypatch.setattr("entity_env.vec.external.game.read_file", lambda *args: opened.append(args))
    monkeypatch.setattr("entity_env.vec.external.game.file_digest", lambda *a: opened.append(a))
    (here / "x.toml").write_text('command = ["sh", "big"]')
    (here / "big").write_text("touch sh.ran")
    path = changed(GOLDEN / "snake.replay", here / "x.replay", game="dots", source="x.toml")
    result = run(command[0], path, *command[1:])
    assert opened == []
    assert result.exit_code in (0, 2)
    assert has_run(here) == []


def test_a_program_counts_while_its_files_stay_the_same(here: Path) -> None:
    for name in ("a", "b"):
        (here / name).write_text(name)
    (here / "x.toml").write_text('command = ["sh", "a", "b"]')
    code = program_code("x.toml")
    remember(code)
    assert was_named(code)
    (here / "a").write_text("ab")  # the bytes of all files together are the same
    (here / "b").write_text("")
    assert not was_named(code)
    with open(here / "a", "wb") as file:
        file.truncate(MAX_CODE_BYTES + 1)
    remember(code)  # too large: not read, and not recorded
    assert not was_named(code)
