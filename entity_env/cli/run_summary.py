"""Output of `entity-env train` at the end of a run."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from entity_env.agents.ppo import TrainResult
from entity_env.agents.ppo.advice import PAGE
from entity_env.agents.ppo.hints import command_to_try, hints_of
from entity_env.agents.rogue_net.checkpoints.agent_file import SUFFIX
from entity_env.agents.training.tracking.rewards import MeanReward, PolicyScores, RandomPlay
from entity_env.agents.training.tracking.runs import (
    EVALUATED,
    REWARD,
    TrainingRun,
    read_about,
    read_run,
)
from entity_env.cli.display.console import Console, echo
from entity_env.cli.evaluation import evaluation_lines, policy_scores
from entity_env.errors import EntityEnvError
from entity_env.views.chart import Series, text_chart

_MIN_WIDTH: Final = 40
_MAX_WIDTH: Final = 79


def tell_of_run(result: TrainResult, play_words: str, out: Path, console: Console) -> None:
    """Prints what a run learned, its folder, and commands to continue."""
    progress, place = result.progress, shlex.quote(str(out))
    run, problem = _read(out)
    evaluated = [f"no evaluation: {problem}"] if problem else evaluation_lines(run, progress.step)
    play = f"play: entity-env play {play_words}"
    resume = f"resume: entity-env train --resume --out {place}"
    if result.is_interrupted:
        echo(f"saved at step {progress.step:,}; {resume}; {play}", *evaluated)
        return
    if console.is_terminal:  # drawings are useless in a log
        _show_curve(run, problem, console)
    learned, training = "no episode has ended yet", None
    if math.isfinite(progress.mean_reward):
        figures = progress.mean_reward, progress.std_reward, progress.window
        training = MeanReward.of(*figures, unfinished=progress.unfinished)
        learned = f"mean episode reward {training.words}"
    took = f"trained {progress.step:,} steps in {progress.elapsed_s:.0f} s"
    echo(f"{took}, {learned}, saved in {out}", *evaluated)
    curve = run.curves.get(EVALUATED)
    if curve is not None and curve.steps[0] == 0:  # the initial agent
        echo(f"start {curve.values[0]:.3f} -> end {curve.values[-1]:.3f}")
    if progress.random_play is not None:
        echo(random_words(progress.random_play, policy_scores(run), training))
    if result.stop_reason:
        echo(f"stopped: {result.stop_reason}; {resume}")
    if late := _compiled_late(result, out):
        echo(late)
    for hint in result.hints:
        echo(f"hint: {hint}")
    if result.hints:
        about: Mapping[str, object] = {}
        with suppress(EntityEnvError):
            about = read_about(out)
        if command := command_to_try(out, about, hints_of(about)):
            echo(f"try: {command}")
        echo(f"more: {PAGE}")
    echo(play)
    echo(f"curves: entity-env report {place} --out {shlex.quote(str(out / 'report.html'))}")
    echo(f"ship: entity-env export {place} {shlex.quote(out.name + SUFFIX)}")


def _compiled_late(result: TrainResult, out: Path) -> str:
    """A sentence if compiled code took over in the middle of a run, else ""."""
    step = None
    with suppress(EntityEnvError):
        step = read_about(out).get("compiled_from_step")
    if not step and not result.progress.is_compiling:
        return ""
    ran = f"ran from step {step:,} on" if isinstance(step, int) else "was not ready yet"
    return (
        f"compiled code {ran}, so the same command may give another network: --compile wait "
        f"makes runs repeat bit for bit, and entity-env reproduce {shlex.quote(str(out))} repeats "
        "this one"
    )


def random_words(found: RandomPlay, scores: PolicyScores, training: MeanReward | None) -> str:
    """A line about random play; warns if the run is shown to be no better.

    Args:
        scores: at the end of the run.
        training: compared if there are none, and only under equal conditions.
    """
    score, how = scores.better, " greedily" if scores.better is scores.greedy else " by sampling"
    if score is None and found.is_like_training:
        score, how = training, " in training"
    order = None if score is None else score.compared_to(found.reward)
    if score is None or order not in (0, -1):
        return f"random play: mean reward {found.reward.words}"
    told = "no better than random" if order == 0 else "worse than random"
    return f"{told}: {score}{how}, random {found.reward}"


def _read(out: Path) -> tuple[TrainingRun, str]:
    """A run's folder; if it is unreadable, an empty run, and why."""
    try:
        return read_run(out), ""
    except EntityEnvError as error:  # the network is saved nevertheless
        return TrainingRun(out), str(error)


def _show_curve(run: TrainingRun, problem: str, console: Console) -> None:
    if problem:
        echo(f"no learning curve: {problem}", err=True)
    curve = run.curves.get(REWARD)
    if curve is not None and len(curve.steps) > 1:
        width = max(_MIN_WIDTH, min(_MAX_WIDTH, console.width - 1))
        is_ascii = console.options.ascii_only
        rows = text_chart(Series("", *curve), x_label="steps", width=width, is_ascii=is_ascii)
        echo("", "mean episode reward", *rows, "")
