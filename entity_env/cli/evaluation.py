"""Options of `train` for evaluations and checkpoints along a run, and what is said of the best."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from entity_env.agents import Agent, BatchPolicy, RandomAgent, against
from entity_env.agents.against import has_bots
from entity_env.agents.ppo.tracking.runs import EVALUATED, read_run
from entity_env.agents.rogue_net.checkpoints.folder import CONFIG, read_header
from entity_env.authoring.game import Game
from entity_env.cli.load_game import (
    AgentLoader,
    is_batch,
    load_opponent,
    load_player,
    make_vec_env,
)
from entity_env.cli.options import COUNT, FiniteFloat, WholeRange
from entity_env.errors import EntityEnvError, UsageError
from entity_env.vec import VecEnv
from entity_env.vec.evaluation import BEST, Evaluator, best_reward
from entity_env.vec.options import OnError
from entity_env.vec.random_baseline import RandomBaseline

if TYPE_CHECKING:
    from entity_env.agents.ppo.callbacks import Callback

_EPISODES: Final = 20
_STEPS: Final = WholeRange(min=0, max=10**15)


class EvaluationPlan(NamedTuple):
    """What the command line asks for: see `evaluation_options`; None where it does not say."""

    eval_episodes: int | None = None
    eval_interval: int | None = None
    eval_opponent: str | None = None
    stop_at: float | None = None
    keep_checkpoints: int | None = None

    @classmethod
    def of(cls, options: dict[str, Any], game: Game) -> EvaluationPlan:
        """What the command's options ask for, which are taken out.

        Raises:
            UsageError: options that do not go together, or an opponent that cannot play.
        """
        plan = cls(**{name: options.pop(name) for name in cls._fields})
        wants = {
            "--eval-episodes": plan.eval_episodes,
            "--eval-opponent": plan.eval_opponent,
            "--stop-at": plan.stop_at,
        }
        given = [name for name, value in wants.items() if value is not None]
        if plan.eval_interval == 0 and given:
            raise UsageError(f"{given[0]} needs evaluations, and --eval-interval 0 turns them off")
        if plan.eval_opponent is not None and game.num_agents == 1:
            raise UsageError(f"{game.name} is for 1 agent: leave out --eval-opponent")
        plan._setting(game)
        return plan

    def _setting(self, game: Game) -> tuple[Game, Callable[[int], Agent]]:
        """The game to play, and what makes the opponent; bots are part of the game."""
        name = self.eval_opponent
        if name is None or name == "random":
            return game, RandomAgent
        if isinstance(load_opponent(game, name, 0, AgentLoader(), "--eval-opponent"), BatchPolicy):
            return game, partial(load_player, game, name, load=AgentLoader())
        return against(game, name), RandomAgent

    def callbacks(
        self,
        game: Game,
        *,
        step_timeout_s: float | None,
        on_error: OnError,
        num_workers: int,
        at_start: bool = False,
    ) -> list[Callback]:
        """What evaluates a run, ends it and keeps checkpoints; `at_start` is `Evaluator`'s."""
        from entity_env.agents.ppo import CheckpointHistory, StopAtReward

        found: list[Callback] = []
        played, opponent = self._setting(game)
        # Where games may take their process down, they get one of their own.
        workers = min(num_workers, 1) if on_error == "restart" and not is_batch(game) else 0
        make = partial(_make_disabled, played, workers, step_timeout_s, on_error)
        # Without evaluations, an agent that plays against itself has nothing to compare with it.
        if self.eval_interval != 0 or played.num_agents == 1 or has_bots(played):
            found.append(RandomBaseline(make, opponent=opponent))
        if self.eval_interval != 0:
            found.append(
                Evaluator(
                    make,
                    episodes=self.eval_episodes or _EPISODES,
                    interval=self.eval_interval,
                    opponent=opponent,
                    at_start=at_start,
                )
            )
        if self.stop_at is not None:
            found.append(StopAtReward(self.stop_at))
        if self.keep_checkpoints:
            found.append(CheckpointHistory(self.keep_checkpoints))
        return found


def _make_disabled(
    game: Game,
    num_workers: int,
    step_timeout_s: float | None,
    on_error: OnError,
    num_envs: int,
) -> VecEnv:
    return make_vec_env(game, num_envs, num_workers, step_timeout_s, on_error, autoreset="disabled")


_OPTIONS: Final = (
    click.option(
        "--eval-episodes",
        type=COUNT,
        help="Episodes of an evaluation, always from the same starts, played greedily.  "
        f"[default: {_EPISODES}]",
    ),
    click.option(
        "--eval-interval",
        type=_STEPS,
        metavar="STEPS",
        help="Decisions between evaluations, whose best agent is kept in OUT/best; 0 = none.  "
        "[default: 20 times in a run, less often if that took over 1.5 % of its time]",
    ),
    click.option(
        "--eval-opponent",
        metavar="AGENT",
        help="In games for several agents: who has the other seats in evaluations, as for --agent "
        "of eval.  [default: random]",
    ),
    click.option(
        "--stop-at",
        type=FiniteFloat(),
        metavar="REWARD",
        help="End the run when an evaluation has reached this mean reward; it goes on by --resume "
        "with another one.",
    ),
    click.option(
        "--keep-checkpoints",
        type=WholeRange(1, 10**6),
        metavar="N",
        help="Keep N checkpoints along the run in OUT/checkpoints, to be played as agents of "
        "different strength.",
    ),
)


def evaluation_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options of an `EvaluationPlan`."""
    return reduce(lambda decorated, option: option(decorated), reversed(_OPTIONS), command)


def best_words(out: Path) -> str:
    """A line about the best checkpoint of a run; "" if the last evaluation is as good."""
    folder = out / BEST
    try:
        rewards = read_run(out).curves.get(EVALUATED)
        if rewards is None or not (folder / CONFIG).is_file():
            return ""
        last, best = float(rewards.values[-1]), best_reward(folder)
        if best <= last:
            return ""
        step = read_header(folder).training.get("step")
    except EntityEnvError as error:
        return f"no best checkpoint: {error}"
    at = f" at step {step:,}" if isinstance(step, int) else ""
    place = shlex.quote(str(folder))
    return f"best: {place}, evaluation reward {best:.3f}{at}, where the last one is {last:.3f}"
