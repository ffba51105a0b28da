"""What `entity-env train` prints at the end of a run."""

from __future__ import annotations

import math
import shlex
from contextlib import suppress
from pathlib import Path
from typing import Final

from entity_env.agents.ppo import TrainResult
from entity_env.agents.ppo.tracking.advice import PAGE
from entity_env.agents.ppo.tracking.runs import REWARD, MeanReward, read_about, read_run
from entity_env.agents.rogue_net.checkpoints.agent_file import SUFFIX
from entity_env.cli.display.console import Console, echo
from entity_env.cli.evaluation import evaluation_lines
from entity_env.errors import EntityEnvError
from entity_env.views.chart import Series, text_chart

_MIN_WIDTH: Final = 40
_MAX_WIDTH: Final = 79


def tell_of_run(result: TrainResult, play_words: str, out: Path, console: Console) -> None:
    """Prints what a run has learned, where it is, and commands to go on with."""
    progress, place = result.progress, shlex.quote(str(out))
    play = f"play: entity-env play {play_words}"
    resume = f"resume: entity-env train --resume --out {place}"
    if result.is_interrupted:
        echo(f"saved at step {progress.step:,}; {resume}; {play}")
        _tell_of_evaluation(out, progress.step)
        return
    if console.is_terminal:  # a log has no use for drawings
        _show_curve(out, console)
    learnt = "no episode has ended yet"
    if math.isfinite(progress.mean_reward):
        figures = progress.mean_reward, progress.std_reward, progress.window
        reward = MeanReward.of(*figures, unfinished=progress.unfinished)
        learnt = f"mean episode reward {reward.words}"
    echo(f"trained {progress.step:,} steps in {progress.elapsed_s:.0f} s, {learnt}, saved in {out}")
    _tell_of_evaluation(out, progress.step)
    if result.stop_reason:
        echo(f"stopped: {result.stop_reason}; {resume}")
    if late := _compiled_late(result, out):
        echo(late)
    for hint in result.hints:
        echo(f"hint: {hint}")
    if result.hints:
        echo(f"more: {PAGE}")
    echo(play)
    echo(f"curves: entity-env report {place} --out {shlex.quote(str(out / 'report.html'))}")
    echo(f"ship: entity-env export {place} {shlex.quote(out.name + SUFFIX)}")


def _compiled_late(result: TrainResult, out: Path) -> str:
    """Says that compiled code took over in the middle of a run; "" if it did not."""
    step = None
    with suppress(EntityEnvError):
        step = read_about(out).get("compiled_from_step")
    if not step and not result.progress.is_compiling:
        return ""
    ran = f"ran from step {step:,} on" if isinstance(step, int) else "was not ready yet"
    return (
        f"compiled code {ran}, so the same command may give another network: --compile wait "
        f"makes runs repeat bit by bit, and entity-env reproduce {shlex.quote(str(out))} repeats "
        "this one"
    )


def _tell_of_evaluation(out: Path, step: int) -> None:
    """Prints what the evaluations at the end of a run say."""
    for line in evaluation_lines(out, step):
        echo(line)


def _show_curve(out: Path, console: Console) -> None:
    """Prints the learning curve, if there is one."""
    try:
        curve = read_run(out).curves.get(REWARD)
    except EntityEnvError as error:  # what was learnt is saved all the same
        echo(f"no learning curve: {error}", err=True)
        return
    if curve is not None and len(curve.steps) > 1:
        width = max(_MIN_WIDTH, min(_MAX_WIDTH, console.width - 1))
        is_ascii = console.options.ascii_only
        rows = text_chart(Series("", *curve), x_label="steps", width=width, is_ascii=is_ascii)
        echo("\n".join(("", "mean episode reward", *rows, "")))
