"""What do evaluations during training cost?

`evaluation_overhead_pct`: processor time that the default evaluations of `entity-env train` add to
a run, in percent, in the game of two where it is larger; each game also has its own figure. Runs
with and without evaluations take turns; the figure compares the medians.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from tempfile import TemporaryDirectory
from time import process_time
from typing import Final

from benchmarks.common import interleaved, report, rounds_and_json
from entity_env.agents.ppo import PPOConfig, train
from entity_env.cli.evaluation import EvaluationPlan
from entity_env.cli.load_game import load_game
from entity_env.cli.training import defaults_of
from entity_env.vec.game_training import make_vec_env, preset_of

_STEPS: Final = {"cartpole": 100_000, "snake": 200_000}


def evaluation_overhead(rounds: int = 5) -> Mapping[str, float]:
    """The figures of this benchmark, by name."""
    figures = {}
    for game, steps in _STEPS.items():
        _train(game, steps // 10, is_evaluated=True)  # compiles
        found = interleaved(
            {
                "plain": partial(_train, game, steps, is_evaluated=False),
                "evaluated": partial(_train, game, steps, is_evaluated=True),
            },
            rounds,
        )
        overhead = 100 * (found["evaluated"] / found["plain"] - 1)
        figures[f"evaluation_overhead_pct_{game}"] = overhead
    return {"evaluation_overhead_pct": max(figures.values()), **figures}


def _train(name: str, steps: int, *, is_evaluated: bool) -> float:
    """Makes one run; returns its seconds of processor time."""
    game = load_game(name)
    num_envs, start, _ = defaults_of(game, preset_of(game), (steps, None, None))
    config = PPOConfig(**{**start, "num_threads": 1})
    plan = EvaluationPlan(eval_interval=None if is_evaluated else 0)
    callbacks = plan.callbacks(game, step_timeout_s=30, on_error="raise", num_workers=0)
    with (
        make_vec_env(game, num_envs) as vec,
        TemporaryDirectory() as out,
    ):
        begin = process_time()
        train(vec, config, out=out, callbacks=callbacks)
        return process_time() - begin


def main() -> None:
    """Prints the figures."""
    rounds, as_json = rounds_and_json(__doc__ or "")
    packages = ("entity-env", "numpy", "torch", "numba")
    report("Evaluations during training", evaluation_overhead(rounds), packages, as_json)


if __name__ == "__main__":
    main()
