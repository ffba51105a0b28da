"""Settings of a run from options, --set-train, a file, and the folder of the resumed run."""

from __future__ import annotations

import json
import tempfile
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given, strategies as st

from entity_env.agents.ppo import PPOConfig
from entity_env.agents.ppo.config import NETS
from entity_env.agents.training.tracking.runs import read_about
from entity_env.cli import main
from entity_env.cli.app import command_of
from entity_env.cli.commands.train import read_duration
from entity_env.cli.run_settings import _own, _public_name

TOML = """
total_steps = 64
learning_rate = [[0, 0.003], [1, 0]]
gamma = 0.5
ent_coef = 0.3
[net]
kind = "rogue_net"
d_model = 8
n_layer = 1
n_head = 1
[game]
board_size = 4
[run]
game = "snake"
num-envs = 4
num_workers = 0
keep = "none"
"""


def run(*args: str) -> Result:
    return CliRunner().invoke(main, ["train", *args])


def refused(*args: str) -> str:
    result = run(*args)
    assert result.exit_code == 2, result.output
    return result.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of settings, and a run made with it."""
    folder = tmp_path_factory.mktemp("settings")
    (folder / "run.toml").write_text(TOML)
    result = run(
        *("--config", str(folder / "run.toml"), "--out", str(folder / "run"), "--ent-coef=0.1"),
        *("--set-train", "gamma=0.75", "--set-train", "ent_coef=0.2", "--record=tensorboard"),
    )
    assert result.exit_code == 0, result.output
    return folder


def config_in(out: Path) -> dict[str, Any]:
    config = read_about(out)["config"]
    assert isinstance(config, dict)
    return config


@pytest.mark.slow
def test_compile_is_an_option_with_a_default_of_the_surroundings(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def mode(*args: str) -> str:
        out = tmp_path / str(len(list(tmp_path.iterdir())))
        small = ("--steps=8", "--num-envs=2", "--num-workers=0", "--keep=none")
        result = run("snake", *small, "--out", str(out), *args)
        assert result.exit_code == 0, result.output
        return str(config_in(out)["compile"])

    assert mode() == "wait"  # set by the tests
    assert mode("--compile=never") == "never"
    monkeypatch.setenv("ENTITY_ENV_COMPILE", "never")
    assert mode() == "never"
    assert mode("--set-train", 'compile="wait"') == "wait"
    monkeypatch.setenv("ENTITY_ENV_COMPILE", "later")
    assert "compile must be one of wait, background, never, or an integer" in refused("snake")
    monkeypatch.delenv("ENTITY_ENV_COMPILE")
    # The cache is not empty, so nothing is compiled.
    monkeypatch.setattr("entity_env.core.numba_utils.is_cached", lambda _: True)
    assert mode() == "background"


@pytest.mark.slow
def test_options_go_before_set_train_before_the_file(folder: Path) -> None:
    config = config_in(folder / "run")
    assert (config["ent_coef"], config["gamma"]) == (0.1, 0.75)
    assert config["learning_rate"] == [[0.0, 0.003], [1.0, 0]]
    assert (config["total_steps"], config["net"]["d_model"]) == (64, 8)
    about = read_about(folder / "run")
    assert (about["num_envs"], about["settings"]) == (4, {"board_size": 4})
    assert about["options"] == {
        "game": "snake",
        "num_envs": "4",
        "num_workers": "0",
        "keep": "none",
        "record": ["tensorboard"],
        "set": ["board_size=4"],
    }


@pytest.mark.slow
def test_a_run_goes_on_from_its_folder_alone(folder: Path) -> None:
    out = folder / "run"
    before = read_about(out)
    result = run("--resume", "--out", str(out), "--steps=96", "--num-envs=2", "--gamma=0.9")
    assert result.exit_code == 0, result.output
    changes = "; total_steps 64 -> 96; gamma 0.75 -> 0.9; num_envs 4 -> 2\n"
    assert f"resuming {out}{changes}" in result.stdout
    after = read_about(out)
    assert after["options"] == {**before["options"], "num_envs": "2"}
    assert after["config"] == {**before["config"], "total_steps": 96, "gamma": 0.9}
    assert (after["settings"], after["id"]) == (before["settings"], before["id"])
    assert [step for _, step in after["resumed"]] == [64]


@pytest.mark.slow
def test_settings_of_an_earlier_run_make_a_new_one(folder: Path) -> None:
    out = folder / "again"
    result = run("--config", str(folder / "run" / "run.json"), "--out", str(out), "--steps=32")
    assert result.exit_code == 0, result.output
    before, after = read_about(folder / "run"), read_about(out)
    assert after["config"] == {**before["config"], "total_steps": 32}
    assert (after["options"], after["settings"]) == (before["options"], before["settings"])
    assert after["id"] != before["id"]


@pytest.mark.slow
def test_a_run_of_another_game_does_not_go_on(folder: Path) -> None:
    out = folder / "run"
    told = refused("azul", "--resume", "--out", str(out))
    assert told == f"entity-env: {out} is a run of snake, not of azul\n"
    assert "needs the folder of the run" in refused("--resume")
    assert "has no run.json, so the game is unknown" in refused("--resume", "--out", str(folder))
    assert "holds a trained agent" in refused("snake", "--out", str(out))


@pytest.mark.slow
def test_a_run_of_an_earlier_release_goes_on(folder: Path) -> None:
    """Its run.json has no options, so the game's settings are given again."""
    out = folder / "again"
    about = {**read_about(out)}
    for name in ("options", "game_name", "id"):
        del about[name]
    (out / "run.json").write_text(json.dumps(about))
    result = run("--resume", "--out", str(out), "--steps=48", "--set=board_size=4")
    assert result.exit_code == 0, result.output
    assert read_about(out)["num_envs"] == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("gama = 1", "{file}: there is no setting 'gama'; did you mean gamma?"),
        ("num_envs = 3", "{file}: num_envs belongs in the table [run]"),
        ("d_model = 3", "{file}: d_model belongs in the table [net]"),
        ("[run]\ngamma = 1", "{file}: in [run]: gamma belongs before the tables, as gamma"),
        ("[run]\nsteps = 1", "{file}: in [run]: steps belongs before the tables, as total_steps"),
        ("[run]\nnum_env = 1", "{file}: there is no option 'num_env' in [run]; did you mean num_e"),
        (
            "[run]\nnum_envs = 1.5",
            "{file}: num_envs: must be an integer from 1 to 1000000, got '1.5'\n",
        ),
        (
            "[run]\nnum_envs = true",
            "{file}: num_envs: must be an integer from 1 to 1000000, got 'true'\n",
        ),
        ("[run]\nmax_time = 3", "{file}: in [run]: max_time belongs before the tables, as max_tr"),
        ("[run]\nrelpos = 'x=1'", "{file}: in [run]: relpos belongs in the table [net], as relp"),
        ("[games]\nboard_size = 3", "{file}: there is no table [games]; did you mean game?"),
        (
            "[other]\nboard_size = 3",
            "{file}: there is no table [other]; the tables are net, game and",
        ),
        ("[run]\nopponent = 'self'", "snake is for one agent: leave out --opponent"),
        ("[run]\ncallback = 3", "--callback needs FILE.py:CLASS, got '3'"),
        ("[run]\nresume = true", "{file}: there is no option 'resume' in [run]"),
        ("[game]\nboard = 3", "snake has no setting 'board'"),
        ("[game]\nself = 3", "snake has no setting 'self'"),
        ("total_steps = 'none'", "total_steps must be an integer from 1 to 9.223e+18, got None"),
        (
            "[game]\nboard_size = [3]",
            "{file}: in [game]: board_size must be a number or a text, got [3]",
        ),
        ("[net]\nhidden = [0]", "{file}: net: hidden must be a list of integers from 1 to"),
    ],
)
def test_mistakes_in_a_file_are_one_line_that_names_it(
    tmp_path: Path, text: str, words: str
) -> None:
    file = tmp_path / "run.toml"
    file.write_text(text)
    told = refused("snake", "--config", str(file), "--out", str(tmp_path / "run"))
    assert words.format(file=file) in told
    assert told.count("\n") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--set-train=gama=1"], "--set-train gama=1: there is no setting 'gama'; did you mean"),
        (["--set-train=gamma"], "expected a setting NAME=VALUE, got 'gamma'"),
        (["--set-train=gamma=2"], "--set-train gamma=2: gamma must be a number from 0 to 1, got 2"),
        (["--config=none.toml"], "cannot read none.toml: No such file or directory"),
        (["--max-time=soon"], "'soon' is not a time such as 90, 30m, 2h or 1h30m."),
        (["--max-time="], "'' is not a time such as"),
        (["--record=diary"], "'diary' is not one of"),
    ],
)
def test_mistakes_in_options_are_told(tmp_path: Path, args: list[str], words: str) -> None:
    assert words in refused("snake", *args, "--out", str(tmp_path))


@pytest.mark.parametrize(
    ("option", "setting"),
    [
        ("--clip-coef=0.1", "--clip-coef is a setting of the trainer: --set-train clip_coef=VALUE"),
        ("--no-norm-returns", "--set-train norm_returns=VALUE; --set-train help lists them"),
        ("--d-model=8", "--set-train net.d_model=VALUE;"),
        ("--gama=0.9", "No such option"),
    ],
)
def test_a_setting_without_an_option_is_told(option: str, setting: str) -> None:
    told = refused("snake", option)
    assert setting in told
    assert told.count("\n") == 1


@pytest.mark.parametrize(
    ("game", "net", "rows"),
    [
        ("snake", "rogue_net", ["gamma a number from 0 to 1, or a schedule 0.99 Discount of"]),
        ("cartpole", "mlp", ["gamma a number from 0 to 1, or a schedule 0.995 Discount of"]),
    ],
)
def test_every_setting_is_listed_as_the_game_has_it(
    monkeypatch: pytest.MonkeyPatch, game: str, net: str, rows: list[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    result = run(game, "--set-train", "help")
    assert result.exit_code == 0, result.output
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    for row in [*rows, "norm_returns true or false true Whether"]:
        assert sum(line.startswith(row) for line in lines) == 1, row
    names = {line.split()[0] for line in lines}
    kinds = {"net.kind", *(f"net.{each.name}" for each in fields(NETS[net]))}
    assert {each.name for each in fields(PPOConfig) if each.name != "net"} | kinds <= names


@pytest.mark.slow
def test_a_run_ends_after_its_time_and_says_how_to_go_on(folder: Path) -> None:
    out = folder / "timed"
    args = ("--config", str(folder / "run.toml"), "--out", str(out))
    result = run(*args, "--steps=100000000", "--max-time=0.000001h")
    assert result.exit_code == 0, result.output
    resume = f"resume: entity-env train --resume --out {out}"
    assert f"stopped: max_train_time_s=0.0036 is over; {resume}\n" in result.stdout
    assert config_in(out)["max_train_time_s"] == 0.0036
    assert "max_time" not in read_about(out)["options"]


@pytest.mark.slow
def test_a_callback_of_a_file_sees_the_run(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "patience.py"
    file.write_text(
        "from entity_env.agents.ppo import Callback\n"
        "class Patience(Callback):\n"
        "    def on_update(self, state):\n"
        "        state.stop('enough')\n"
    )
    given = ("--config", str(folder / "run.toml"), "--out", str(tmp_path / "run"))
    result = run(*given, "--steps=6400", "--callback", f"{file}:Patience")
    assert "stopped: enough; resume: " in result.stdout, result.output
    assert read_about(tmp_path / "run")["options"]["callback"] == [f"{file}:Patience"]
    for name, words in (
        (f"{file}:Nothing", "has no class 'Nothing' that derives from Callback; it has Patience"),
        (f"{file}:Patienc", "that derives from Callback; did you mean Patience?"),
        (str(file), "--callback needs FILE.py:CLASS"),
        ("none.py:Patience", "no file none.py"),
    ):
        told = refused("snake", "--out", str(tmp_path / "other"), "--callback", name)
        assert words in told


@pytest.mark.slow
def test_what_a_callback_of_a_file_raises_is_told_from_the_file_on(
    folder: Path, tmp_path: Path
) -> None:
    file = tmp_path / "failing.py"
    file.write_text(
        "from entity_env.agents.ppo import Callback\n"
        "class Fails(Callback):\n"
        "    def on_update(self, state):\n"
        "        raise LookupError('boom')\n"
        "class Leaves(Callback):\n"
        "    def on_update(self, state):\n"
        "        raise KeyboardInterrupt\n"
        "class Lacks(Callback):\n"
        "    def __init__(self, patience):\n"
        "        pass\n"
    )
    out = tmp_path / "run"
    given = ("--config", str(folder / "run.toml"), "--out", str(out), "--callback")
    lacks = refused(*given, f"{file}:Lacks")
    assert "--callback Lacks: its constructor, called with nothing, raised TypeError" in lacks
    assert not out.exists()
    failed = run(*given, f"{file}:Fails")
    assert failed.exit_code == 1
    trace = failed.stderr.splitlines()
    assert trace[0] == "Traceback (most recent call last):"
    assert trace[1] == f'  File "{file}", line 4, in on_update'
    assert trace[-3:] == [
        "LookupError: boom",
        "raised by Fails.on_update, a callback of the run",
        f"{out / 'checkpoint'} has step 32: resume continues from it",
    ]
    left = run(*given, f"{file}:Leaves", "--out", str(tmp_path / "left"))
    assert left.exit_code == 2
    line = "Leaves.on_update, a callback of the run: KeyboardInterrupt was raised at "
    assert f"{line}{file}:7 in on_update: it ends the program (" in left.stderr
    (tmp_path / "broken.py").write_text("import nothing_such")
    other = str(tmp_path / "other")
    failed = run("snake", "--out", other, "--callback", f"{tmp_path / 'broken.py'}:Fails")
    assert "No module named 'nothing_such'" in failed.stderr
    assert "  File " not in failed.stderr


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("30m", 1800), ("2h", 7200), ("1h30m", 5400), ("1.5d", 129600)],
)
def test_times_are_read(text: str, seconds: float) -> None:
    assert read_duration(text) == seconds


def test_the_layout_of_the_file_is_in_the_help() -> None:
    help_text = run("--help").output
    assert "[net]" in help_text
    assert "--set-train" in help_text


_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["\0", "../x", "auto", "a.py:B", "1" * 5000, "a=b", "gymnasium:x"]),
    lambda values: st.lists(values, max_size=2) | st.dictionaries(st.text(), values, max_size=1),
    max_leaves=3,
)


@given(data=st.data())
def test_values_of_any_type_are_taken_or_refused_in_one_line(data: st.DataObject) -> None:
    train = command_of("train")
    names = sorted(_own({_public_name(param): param for param in train.params}))
    options = data.draw(st.dictionaries(st.sampled_from(names), _VALUES, max_size=3))
    about = {"format": "entity_env.run", "options": {"game": "snake", **options}, "config": {}}
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(train, "callback", lambda **_: None)
        path = Path(folder, "run.json")
        path.write_text(json.dumps(about))
        result = run("--config", str(path), "--out", str(Path(folder, "run")))
    assert result.exit_code in (0, 2), result.exception
    assert result.stderr.count("\n") == (result.exit_code == 2)


@pytest.mark.parametrize("text", ["\ud800", "a\0b"])
def test_a_text_that_cannot_be_typed_is_refused(tmp_path: Path, text: str) -> None:
    about = {"format": "entity_env.run", "game": text, "options": {"failures": text}}
    (tmp_path / "run.json").write_text(json.dumps(about))
    result = CliRunner().invoke(main, ["train", "--resume", "--out", str(tmp_path)])
    assert result.exit_code == 2
    assert "must be a number or a text" in result.stderr
