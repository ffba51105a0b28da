"""`entity-env train`: display, files, messages, resuming, and Ctrl-C."""

import io
import json
import os
import re
import shlex
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from entity_env import Game
from entity_env.agents.ppo import Losses, TrainProgress
from entity_env.agents.rogue_net.checkpoints.folder import (
    find_checkpoint,
    network_digest,
    read_header,
)
from entity_env.agents.training.tracking.runs import EVALUATED, read_run
from entity_env.cli import main
from entity_env.cli.display.train_dashboard import TrainDisplay, sparkline
from entity_env.cli.load_game import load_game
from entity_env.cli.training import KeptReplays, ReplayOptions
from entity_env.errors import ReplayError
from entity_env.games import snake
from entity_env.replay import Replay
from entity_env.replay.training_replays import KINDS
from entity_env.vec.evaluation.evaluator import best_reward
from tests.cli.commands.test_eval import BROKEN

SMALL = (
    *("--num-envs=4", "--num-steps=16"),
    "--set-train=net={d_model=8,n_layer=1,n_head=1}",
)


def run(*args: str) -> Result:
    return CliRunner().invoke(main, args)


def train(out: Path, *args: str) -> Result:
    return run("train", "snake", "--out", str(out), "--set", "board_size=4", *args)


def settings_in(out: Path) -> dict[str, Any]:
    config = read_header(find_checkpoint(out)).training["config"]
    assert isinstance(config, dict)
    return config


def step_in(out: Path) -> object:
    return read_header(find_checkpoint(out)).training["step"]


def test_by_default_a_game_without_replays_keeps_none(tmp_path: Path) -> None:
    in_json = KeptReplays.of(snake, tmp_path, ReplayOptions())
    assert in_json == (KINDS, tmp_path / "failures", ReplayOptions().moments)
    color = Game(lambda agent, *, seed, color=0: None, entities=(), actions=())
    unreadable = color.with_settings(color=object())
    assert KeptReplays.of(unreadable, tmp_path, ReplayOptions(moments=0)) == ((), None, 0)
    with pytest.raises(ReplayError, match="a replay can store only settings"):
        KeptReplays.of(unreadable, tmp_path, ReplayOptions(moments=1))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    out = tmp_path_factory.mktemp("runs") / "snake run"
    result = train(out, *SMALL, "--steps", "128", "--gamma", "0.9", "--seed", "7")
    return out, result


@pytest.mark.slow
def test_fitted_settings_follow_the_game_and_stay(tmp_path: Path) -> None:
    out = tmp_path / "a"
    small = SMALL[2:]
    result = train(out, *small, "--steps=2000", "--until=1", "--num-workers=0")
    assert result.exit_code == 0, result.output
    found = re.search(r"^(\d+) environments x (\d+) steps: episodes last", result.stdout, re.M)
    assert found is not None
    assert str(read_run(out).about["defaults"]).startswith(f"['{found[0]}")
    assert (read_run(out).about["num_envs"], settings_in(out)["num_steps"]) == (
        *map(int, found.groups()),
    )
    assert settings_in(out)["norm_entropy"] is True
    assert settings_in(out)["staggered_steps"] in range(1, 2000)
    again = run("train", "--resume", "--out", str(out), "--steps=2000", "--num-workers=0")
    assert again.exit_code == 0, again.output
    assert "episodes last" not in again.stdout
    assert (read_run(out).about["num_envs"], settings_in(out)["num_steps"]) == (
        *map(int, found.groups()),
    )
    given = train(tmp_path / "b", "--num-envs=4", *small, "--steps=600", "--num-workers=0")
    assert "4 environments x " in given.stdout


@pytest.mark.slow
def test_writes_checkpoint_and_curves_and_says_what_to_do(trained: tuple[Path, Result]) -> None:
    out, result = trained
    assert (result.exit_code, result.stderr) == (0, "")
    assert re.search(r"^step 64 of 128  [\d,]+ steps/s  reward ", result.stdout, re.M)
    assert "trained 128 steps" in result.stdout
    quoted = shlex.quote(str(out))
    assert f"play: entity-env play snake --set board_size=4 --agent {quoted}\n" in result.stdout
    assert f"curves: entity-env report {quoted} --out {shlex.quote(f'{out}/report.html')}\n" in (
        result.stdout
    )
    written = read_run(out)
    assert (written.game, written.seed, len(written.clock.steps)) == ("snake", 7, 2)
    assert written.settings()["board_size"] == 4
    assert written.settings()["num_envs"] == 4
    assert "┤" not in result.stdout  # curves are only for terminals
    assert list((out / "tensorboard").glob("events.out.tfevents.*"))
    assert settings_in(out)["gamma"] == 0.9
    assert settings_in(out)["seed"] == 7
    assert settings_in(out)["net"]["d_model"] == 8


STUCK = """
from enum import Enum
from entity_env import Game, Obs

class Move(Enum):
    LEFT = 0
    RIGHT = 1

def play(agent, *, seed: int, hangs: bool = False) -> None:
    agent.act(Obs(), Move)
    while hangs:
        pass
    if seed % 3 == 0:
        raise RuntimeError("stumbled")
    agent.game_over(Obs(1.0))

stuck = Game(play, entities=(), actions=(Move,))
"""


@pytest.mark.slow
@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_game_that_hangs_or_raises(tmp_path: Path, num_workers: int) -> None:
    path = tmp_path / "stuck.py"
    path.write_text(STUCK)
    words = ("train", str(path), *SMALL, f"--num-workers={num_workers}", "--steps=64")
    hangs = run(*words, f"--out={tmp_path / 'a'}", "--set=hangs=true", "--step-timeout=0.3")
    assert hangs.exit_code == 1
    assert re.search(r'stuck.py", line \d+,? in play', hangs.stderr)
    assert re.search(r"hangs: no answer for 0.3 s.*\(env \d, .*seed \d+, episode 0", hangs.stderr)
    raises = run(*words, f"--out={tmp_path / 'b'}")
    assert raises.exit_code == 1
    assert "stumbled" in raises.stderr
    goes_on = run(*words, f"--out={tmp_path / 'c'}", "--on-error=restart")
    assert (goes_on.exit_code, step_in(tmp_path / "c")) == (0, 64)


@pytest.mark.slow
def test_a_run_that_ended_no_episode_says_so(tmp_path: Path) -> None:
    args = ("--out", str(tmp_path / "run"), *SMALL, "--steps", "8", "--num-steps", "2")
    result = run("train", "cartpole", *args)
    assert result.exit_code == 0
    assert re.search(r"trained 8 steps in \d+ s, no episode has ended yet, saved in", result.stdout)


@pytest.mark.slow
def test_what_it_says_works(trained: tuple[Path, Result]) -> None:
    out, result = trained
    [line] = re.findall(r"^play: entity-env (.*)$", result.stdout, re.M)
    played = run(*shlex.split(line), "--seed", "1", "--no-render")
    assert "episode 1: reward" in played.stdout
    evaluated = run("eval", "snake", "--agent", str(out), "--episodes", "2", "--greedy")
    assert evaluated.exit_code == 0


@pytest.mark.slow
def test_an_environment_of_gymnasium_is_trained_evaluated_and_played(tmp_path: Path) -> None:
    out = tmp_path / "run"
    lake = ["gymnasium:FrozenLake-v1", "--set", "is_slippery=False"]
    done = run("train", *lake, "--steps=64", "--num-workers=0", "--num-steps=8", f"--out={out}")
    assert done.exit_code == 0, done.output
    command = next(line for line in done.output.splitlines() if line.startswith("play: "))
    words = shlex.split(command.removeprefix("play: entity-env "))
    played = run(*words, "--seed=1", "--fps=10000")
    assert played.exit_code == 0, played.output
    assert "SFFF" in played.output
    assert "episode 1: reward " in played.output
    assert run("eval", *lake, f"--agent={out}", "--episodes=3", "--num-workers=0").exit_code == 0


@pytest.mark.slow
def test_goes_on_with_the_same_settings(tmp_path: Path) -> None:
    train(tmp_path, *SMALL, "--steps", "64", "--gamma", "0.9")
    result = train(tmp_path, "--resume", "--steps", "32")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "has already made 64, so nothing is left of 32" in result.stderr
    result = train(tmp_path, "--resume", "--num-envs", "4", "--steps", "128")
    assert result.exit_code == 0
    assert "step 128 of 128" in result.stdout
    assert step_in(tmp_path) == 128
    assert (settings_in(tmp_path)["gamma"], settings_in(tmp_path)["net"]["d_model"]) == (0.9, 8)


@pytest.mark.slow
def test_a_run_of_an_earlier_release_goes_on_without_normalization(tmp_path: Path) -> None:
    """Its files do not contain `norm_inputs`."""
    small = ("--num-steps=8", "--num-envs=4", "--eval-interval=0")
    words = ("train", "cartpole", "--out", str(tmp_path), *small)
    done = run(*words, "--steps=64", "--set-train", "net.norm_inputs=false")
    assert done.exit_code == 0, done.output
    for path in (find_checkpoint(tmp_path) / "config.json", tmp_path / "run.json"):
        data = json.loads(path.read_text())
        config = data["config"] if "config" in data else data["training"]["config"]
        del config["net"]["norm_inputs"]
        path.write_text(json.dumps(data))
    again = run("train", "cartpole", "--out", str(tmp_path), "--resume", "--steps=128")
    assert again.exit_code == 0, again.output
    assert step_in(tmp_path) == 128
    net = {"hidden": [64, 64], "norm_inputs": False, "memory": 0}
    assert settings_in(tmp_path)["net"] == net


def test_overwrites_no_trained_agent(trained: tuple[Path, Result]) -> None:
    out, _ = trained
    result = train(out, *SMALL)
    assert result.exit_code == 2
    assert "holds a trained agent: continue training with --resume" in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_checkpoint_of_another_game_is_not_gone_on_with(trained: tuple[Path, Result]) -> None:
    result = run("train", "cherry_pick", "--out", str(trained[0]), "--resume")
    assert result.exit_code == 2
    assert "is a run of snake, not of cherry_pick" in result.stderr


@pytest.mark.slow
def test_control_c_saves_and_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(display: TrainDisplay, progress: TrainProgress) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(TrainDisplay, "__call__", interrupt)
    result = train(tmp_path, *SMALL, "--steps", "128")
    assert (result.exit_code, result.stderr) == (130, "")
    [line] = re.findall(r"^saved at step 64; .*$", result.stdout, re.M)
    assert f"play: entity-env play snake --set board_size=4 --agent {tmp_path}" in line
    assert step_in(tmp_path) == 64
    monkeypatch.undo()
    [command] = re.findall(r"resume: entity-env (.*?);", line)
    assert run(*shlex.split(command)).exit_code == 0
    assert step_in(tmp_path) == 128


@pytest.mark.slow
def test_a_folder_of_somebody_else_is_refused_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "checkpoint" / "epoch_17" / "model.pt"
    file.parent.mkdir(parents=True)
    file.write_text("weeks of work")
    result = train(tmp_path, *SMALL)
    assert result.exit_code == 2
    assert result.stderr.startswith(
        f"entity-env: {tmp_path}/checkpoint is not a checkpoint but holds"
    )
    assert result.stderr.count("\n") == 1
    assert file.read_text() == "weeks of work"
    for place in ("/dev/null", "/proc/nothing", str(tmp_path / ("x" * 300))):
        result = train(Path(place), *SMALL)
        assert result.exit_code == 2
        assert result.stderr.count("\n") == 1


@pytest.mark.slow
def test_training_that_diverges_keeps_the_agent_and_fails(tmp_path: Path) -> None:
    train(tmp_path, *SMALL, "--steps", "64")
    result = train(tmp_path, *SMALL, "--resume", "--steps", "640", "--learning-rate", "1e12")
    assert result.exit_code == 1
    assert "training diverged in update 2, after 64 steps" in result.stderr
    assert "has update 1. Try a smaller learning_rate" in result.stderr
    assert result.stderr.count("\n") == 1
    assert step_in(tmp_path) == 64


@pytest.mark.slow
@pytest.mark.parametrize(("signum", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_saves_and_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, signum: int, code: int
) -> None:
    def interrupt(display: TrainDisplay, progress: TrainProgress) -> None:
        os.kill(os.getpid(), signum)

    monkeypatch.setattr(TrainDisplay, "__call__", interrupt)
    result = train(tmp_path, *SMALL, "--steps", "128")
    assert (result.exit_code, result.stderr) == (code, "")
    assert re.search(r"^saved at step 64; resume: .*; play: ", result.stdout, re.M)
    assert step_in(tmp_path) == 64


@pytest.mark.slow
def test_settings_of_a_checkpoint_that_are_none_are_told(tmp_path: Path) -> None:
    train(tmp_path, *SMALL, "--steps", "64")
    config = tmp_path / "checkpoint" / "config.json"
    text = config.read_text()
    for old, new in (('"gamma": 0.99', '"gamma": "x"'), ('"num_steps": 16', '"num_steps": 1e99')):
        assert old in text
        config.write_text(text.replace(old, new))
        result = train(tmp_path, "--resume", "--steps", "128")
        assert result.exit_code == 2
        assert "cannot be resumed" in result.stderr


@pytest.mark.slow
def test_a_bug_in_a_game_is_shown_from_its_own_frames_on(tmp_path: Path) -> None:
    file = tmp_path / "breaking_game.py"
    file.write_text(
        "from enum import Enum\nfrom entity_env import Game, Obs\n"
        "class Move(Enum):\n    LEFT = 0\n"
        "def play(agent, *, seed: int) -> None:\n"
        "    agent.act(Obs(), Move)\n    raise RuntimeError('broken')\n"
        "game = Game(play, entities=(), actions=(Move,))\n"
    )
    result = run("train", str(file), "--out", str(tmp_path / "run"), *SMALL)
    assert result.exit_code == 1
    lines = result.stderr.splitlines()
    assert lines[1] == f'  File "{file}", line 7, in play'
    assert "RuntimeError: broken" in result.stderr
    assert "env 0" in lines[-2]
    assert lines[-1].startswith(f"play this episode again: entity-env play {file} --episode-seed ")


@pytest.mark.slow
def test_settings_that_leave_no_game_are_refused_in_one_line(tmp_path: Path) -> None:
    result = run("train", "snake", "--set", "board_size=1", "--out", str(tmp_path), *SMALL)
    assert result.exit_code == 2
    assert result.stderr == "entity-env: snake: board_size must be at least 2, got 1\n"


PROGRESS = TrainProgress(
    step=1_000,
    total=4_000,
    steps_per_s=2_500.0,
    mean_reward=1.25,
    mean_length=31.0,
    num_episodes=42,
    losses=Losses(policy_loss=-0.01, value_loss=0.5, entropy=1.2),
    eta_s=3_725.0,
)


def test_a_terminal_shows_figures_and_a_curve() -> None:
    console = Console(file=io.StringIO(), width=100, force_terminal=True)
    with TrainDisplay("training snake", console) as display:
        display(PROGRESS)
    assert isinstance(console.file, io.StringIO)
    shown = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", console.file.getvalue())
    for text in ("training snake", "25%", "1,000 of 4,000 steps", "2,500", "1.250", "31.000"):
        assert text in shown
    for text in ("value loss", "0.500", "entropy", "time left", "1:02:05", "approx kl"):
        assert text in shown


def test_elsewhere_lines_come_at_a_pace() -> None:
    console = Console(file=io.StringIO(), width=40, force_terminal=False)
    times = iter(range(100))
    with TrainDisplay("training snake", console, clock=lambda: float(next(times))) as display:
        for _ in range(10):
            display(PROGRESS)
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert 1 < len(lines) < 5
    assert lines[0].startswith("step 1,000 of 4,000  2,500 steps/s  reward 1.250  length 31.000")
    assert lines[0].endswith("1:02:05 left")


def test_a_curve_shrinks_to_its_width() -> None:
    assert sparkline([]) == ""
    assert sparkline([1.0]) == "▁"
    assert sparkline([0.0, 0.0, 7.0, 7.0, 3.0, 3.0], width=3) == "▁█▄"
    assert len(sparkline([float(i) for i in range(1000)], width=50)) == 50


@pytest.mark.parametrize("out", ["/dev/null", "/dev/null/x", "/proc/x", "x" * 300])
def test_a_folder_that_cannot_be_made_is_one_line(out: str) -> None:
    result = run("train", "snake", "--out", out, "--num-workers", "0", *SMALL, "--steps", "4")
    assert result.exit_code in (1, 2)
    assert re.fullmatch(r"entity-env: .*\n", result.stderr)
    assert "trained" not in result.stdout


@pytest.mark.slow
def test_options_of_network_and_trainer(tmp_path: Path) -> None:
    options = (
        *(
            "--set-train=warmup_steps=32",
            "--set-train=microbatch_size=16",
            "--set-train=weight_decay=0.01",
            "--set-train=norm_returns=true",
        ),
        *(
            "--set-train=net.separate_value=true",
            "--set-train=net.dropout=0.1",
            "--relpos=x=3,y=4",
            "--set-train=norm_returns=false",
        ),
    )
    words = ("--set", "num_snakes=1", "--out", str(tmp_path), *SMALL, *options, "--steps", "64")
    result = run("train", "multi_snake", *words)
    assert result.exit_code == 0, result.output
    assert (
        "settings for any number of entities: 4 environments, 64 steps, num_steps 16"
        in result.stdout
    )
    assert ", relpos_encoding=(x=3,y=4), " in result.stdout
    config: Any = read_header(find_checkpoint(tmp_path)).training["config"]
    ppo = {"warmup_steps": 32, "microbatch_size": 16, "weight_decay": 0.01, "norm_returns": False}
    assert {name: config[name] for name in ppo} == ppo
    net = config["net"]
    assert (net["separate_value"], net["dropout"]) == (True, 0.1)
    assert net["relpos_encoding"]["extent"] == [3, 4]
    assert net["relpos_encoding"]["position_features"] == ["x", "y"]


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("--relpos=x", "'x' is not of the form NAME=CELLS"),
        ("--relpos=x=5,z=5", "'z'"),
        ("--set-train=net.pooling=sum", "pooling must be one of mean, max, meanmax, or none"),
        ("--preset=none", "'none' is not one of 'entities', 'control'"),
        ("--preset=pictures", "CNN needs observations of fixed size"),
    ],
)
def test_wrong_options_are_one_line(tmp_path: Path, option: str, told: str) -> None:
    result = train(tmp_path, "--steps", "64", option)
    assert result.exit_code != 0
    assert told in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.slow
def test_a_preset_may_be_named(tmp_path: Path) -> None:
    result = train(tmp_path, *SMALL, "--steps", "64", "--preset=screen")
    assert result.exit_code == 0, result.output
    config: Any = read_header(find_checkpoint(tmp_path)).training["config"]
    assert (config["gamma"], config["minibatch_size"]) == (0.95, 128)


@pytest.mark.slow
def test_keeps_replays(tmp_path: Path) -> None:
    out = tmp_path / "run"
    small = ["--steps", "512", "--num-envs", "8", "--num-workers", "0"]
    assert run("train", "snake", *small, "--out", str(out), "--replays", "2").exit_code == 0
    names = sorted(path.name for path in (out / "replays").iterdir())
    assert names == [
        "best.replay",
        "step-000000000.replay",
        "step-000000512.replay",
        "worst.replay",
    ]
    assert not (out / "failures").exists()
    for name in names:
        assert Replay.load(out / "replays" / name).verify() is None
    assert (
        run("train", "snake", *small, "--out", str(tmp_path / "b"), "--keep", "none").exit_code == 0
    )
    assert not (tmp_path / "b" / "replays").exists()


@pytest.mark.slow
def test_a_failure_leaves_a_replay(tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_text(BROKEN.replace("NUM_AGENTS", "1"))
    done = run("train", str(file), "--num-workers", "0", "--out", str(tmp_path / "run"))
    assert done.exit_code == 1
    [path] = (tmp_path / "run" / "failures").iterdir()
    assert f"replay: {path}" in done.output
    assert Replay.load(path).verify(load_game(str(file))) is None


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["snake", "--keep", "good"], "'good' is not one of best, worst, failed"),
        (["cartpole", "--keep", "best"], "is trained in a batch environment"),
        (["cartpole", "--failures", "x"], "is trained in a batch environment"),
    ],
)
def test_what_cannot_be_kept_is_told(words: list[str], told: str, tmp_path: Path) -> None:
    done = run("train", *words, "--out", str(tmp_path / "run"))
    assert done.exit_code
    assert told in done.output


@pytest.mark.slow
@pytest.mark.timeout(300)  # may have to compile the kernels
def test_memory_in_runs_that_begin_with_a_network(tmp_path: Path) -> None:
    """A run can add a memory. Later runs keep it, and play longer rollouts for it."""
    games = []
    for name, feature, width in (("old", "", 1), ("new", "    hp: int", 2)):
        code = GROWN.format(feature=feature, choice="", width=width)
        games.append(tmp_path / f"{name}.py")
        games[-1].write_text(code.replace("range(4)", "range(30)"))
    words = ("--num-workers=0", "--eval-interval=0")

    def begin(game: Path, start: str, out: str, *more: str) -> Result:
        origin = ("--init-from", str(tmp_path / start), "--adapt") if start else SMALL
        return run("train", str(game), *origin, "--out", str(tmp_path / out), *words, *more)

    assert begin(games[0], "", "plain", "--steps=64").exit_code == 0
    added = begin(games[1], "plain", "added", "--steps=64", "--set-train=net.memory=8")
    assert added.exit_code == 0
    about = json.loads((tmp_path / "added" / "run.json").read_text())["init_from"]
    assert about["changes"][-1] == "it can remember now: no effect at first"
    for start, memory in (("plain", 0), ("added", 8)):
        out = f"long-{start}"
        assert begin(games[0], start, out, "--steps=2048").exit_code == 0
        found = settings_in(tmp_path / out)
        assert found["net"].get("memory", 0) == memory
        assert (found["num_steps"] > 50) is (memory > 0)
    for memory in (0, 3):
        refused = begin(games[0], "added", "other", f"--set-train=net.memory={memory}")
        assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1)
        assert f"its memory is 8, but {memory} was requested" in refused.stderr


GROWN = """
from dataclasses import dataclass
from enum import Enum
from entity_env import Game, Obs

@dataclass
class Unit:
    x: int
{feature}

class Move(Enum):
    LEFT = 0
    RIGHT = 1
{choice}

def play(agent, *, seed: int) -> None:
    for step in range(4):
        if agent.act(Obs(step).entities([Unit(*range(step, step + {width}))]), Move) is None:
            return
    agent.game_over(Obs(4))

game = Game(play, entities=(Unit,), actions=(Move,))
"""


@pytest.mark.slow
@pytest.mark.timeout(300)  # may have to compile the kernels
def test_a_run_begins_with_the_network_of_another_one(tmp_path: Path) -> None:
    """It adapts the network to a changed game, and can be resumed like any run."""
    old, new = tmp_path / "old.py", tmp_path / "new.py"
    old.write_text(GROWN.format(feature="", choice="", width=1))
    new.write_text(GROWN.format(feature="    hp: int", choice="    HEAL = 2", width=2))
    first, second = tmp_path / "first", tmp_path / "second"
    words = ("--steps", "64", "--num-envs=4", "--num-workers=0")
    assert run("train", str(old), "--out", str(first), *SMALL, *words).exit_code == 0

    def begin(*more: str) -> Result:
        return run("train", str(new), "--out", str(second), *words, *more)

    for more, told in (
        (("--init-from", str(first)), "was trained for a different game: .*'hp'.*'HEAL'.*--adapt"),
        (("--adapt",), "--adapt goes with --init-from"),
        (("--rename", "a=b"), "--rename goes with --init-from"),
        (("--init-from", str(first), "--rename", "a"), "--rename needs THEIRS=OURS, got 'a'"),
        (("--init-from", str(first), "--rename", "a=b"), "the network has nothing called 'a'"),
        (
            ("--init-from", str(first), "--adapt", "--resume"),
            "--init-from begins a new run, --resume",
        ),
        (
            ("--init-from", str(first), "--adapt", "--set-train=net.d_model=16"),
            "its d_model is 8, but 16 was requested",
        ),
        (("--init-from", str(tmp_path / "none"), "--adapt"), "no checkpoint at"),
        (
            ("--stay-close=0.2",),
            "--stay-close goes with --init-from: name the run to stay close to",
        ),
        (("--set-train=stay_close=[[0, 0.2], [1, 0]]",), "--stay-close goes with --init-from"),
    ):
        refused = begin(*more)
        assert refused.exit_code == 2
        assert re.search(told, refused.stderr)
        assert refused.stderr.count("\n") == 1
        assert not second.exists()

    result = begin(
        "--init-from",
        str(first),
        "--adapt",
        "--set-train=norm_returns=true",
        "--set-train=net.dropout=0.1",
    )
    assert result.exit_code == 0
    assert f"from {first}: feature Unit.hp is new: no effect at first\n" in result.stdout
    assert f"from {first}: choice HEAL of Move is new: starts as likely as" in result.stdout
    assert step_in(second) == 64
    assert settings_in(second)["net"]["d_model"] == 8
    assert result.stdout.startswith("fine-tuning settings for any number of entities: ")
    beginner, tuned = settings_in(first), settings_in(second)
    assert tuned["learning_rate"] == pytest.approx(0.3 * beginner["learning_rate"])
    assert (beginner["ent_coef"], tuned["ent_coef"]) == (0.1, 0.01)
    assert tuned["stay_close"] == [[0, 0.2], [0.5, 0]]
    start, end = (
        float(x) for x in re.findall(r"^start (\S+) -> end (\S+)$", result.stdout, re.M)[0]
    )
    assert read_run(second).curves[EVALUATED].values[[0, -1]].round(3).tolist() == [start, end]
    assert best_reward(second / "best") >= start - 0.001
    resumed = begin("--steps", "128", "--resume")
    assert resumed.exit_code == 0
    assert step_in(second) == 128
    about = json.loads((second / "run.json").read_text())["init_from"]
    assert about["path"] == str(first)
    assert len(about["changes"]) == 2
    assert about["sha256"] == network_digest(first)


@pytest.mark.slow
def test_a_policy_stays_close_to_the_agent_that_it_began_with(tmp_path: Path) -> None:
    """Also after that agent was deleted; typed settings override those for fine-tuning."""
    first, second = tmp_path / "first", tmp_path / "second"
    assert train(first, *SMALL, "--steps=64").exit_code == 0
    words = (*SMALL[:2], "--steps=64", "--eval-interval=0")
    typed = ("--learning-rate=0.002", "--set-train=ent_coef=0.05", "--stay-close=0.2")
    result = train(second, "--init-from", str(first), *words, *typed)
    assert (result.exit_code, result.stderr) == (0, "")
    assert "start " not in result.stdout
    found = settings_in(second)
    assert [found[n] for n in ("learning_rate", "ent_coef", "stay_close")] == [0.002, 0.05, 0.2]
    shutil.rmtree(first)
    assert train(second, "--resume", "--steps=128").exit_code == 0
    curve = read_run(second).curves["losses/teacher_kl"]
    assert curve.steps.tolist() == [64, 128]
    shutil.rmtree(second / "teacher")
    refused = train(second, "--resume", "--steps=192")
    assert refused.exit_code == 2
    assert "resume with --stay-close 0" in refused.stderr
    assert train(second, "--resume", "--steps=192", "--stay-close=0").exit_code == 0
