"""Options of `train` for evaluations and checkpoints along a run, and a summary of the results."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from entity_env.agents import Agent, BatchPolicy, RandomAgent, against
from entity_env.agents.bots import has_bots
from entity_env.agents.rogue_net.checkpoints.folder import CONFIG, read_header
from entity_env.agents.training.tracking.rewards import (
    GREEDY,
    LAST,
    OTHER_POLICY,
    POLICY,
    MeanReward,
    PolicyScores,
)
from entity_env.agents.training.tracking.runs import TrainingRun
from entity_env.authoring.game import Game
from entity_env.cli.command import CliOption
from entity_env.cli.load_game import AgentLoader, load_opponent, load_player
from entity_env.cli.options import Count, Number
from entity_env.core.validation import Range
from entity_env.errors import EntityEnvError, UsageError
from entity_env.vec.evaluation.evaluator import Evaluator
from entity_env.vec.evaluation.final import BEST, MATCH
from entity_env.vec.evaluation.random_baseline import RandomBaseline
from entity_env.vec.game_training import make_vec_env
from entity_env.vec.options import OnError

if TYPE_CHECKING:
    from entity_env.agents.training.callbacks import Callback

_EPISODES: Final = 20
_MANY_CUT: Final = 0.5
"""Share of truncated episodes that suggests play in circles."""


@dataclass(frozen=True, kw_only=True)
class EvaluationPlan:
    """Options for evaluations and checkpoints during a run; None = the default in the help."""

    eval_episodes: Annotated[Count | None, CliOption(default=str(_EPISODES))] = None
    """Episodes per evaluation, played greedily and always from the same starts."""
    eval_interval: Annotated[
        Number | None,
        CliOption(
            metavar="STEPS",
            default="a 20th of the run; a 10th, and fewer episodes, if that takes over 5 % of it",
        ),
    ] = None
    """Decisions between evaluations; the best agent is kept in OUT/best. 0 = no evaluations."""
    eval_opponent: Annotated[str | None, CliOption(metavar="AGENT", default="random")] = None
    """In games for several agents: the agent in the other seats during evaluations, as for eval
    --agent."""
    stop_at: Annotated[float | None, CliOption(metavar="REWARD")] = None
    """End the run when an evaluation reaches this mean reward. --resume with a different reward
    continues the run."""
    keep_checkpoints: Annotated[int | None, Range(1, 10**6), CliOption(metavar="N")] = None
    """Keep N checkpoints along the run in OUT/checkpoints, to play as agents of different
    strength."""

    def require(self, game: Game) -> None:
        """Raises `UsageError` for options that exclude each other, or a wrong opponent."""
        wants = {
            "--eval-episodes": self.eval_episodes,
            "--eval-opponent": self.eval_opponent,
            "--stop-at": self.stop_at,
        }
        given = [name for name, value in wants.items() if value is not None]
        if self.eval_interval == 0 and given:
            raise UsageError(f"{given[0]} needs evaluations, and --eval-interval 0 turns them off")
        if self.eval_opponent is not None and game.num_agents == 1:
            raise UsageError(f"{game.name} is for 1 agent: leave out --eval-opponent")
        self._setting(game)

    def _setting(self, game: Game) -> tuple[Game, Callable[[int], Agent]]:
        """The game to play, including bots, and a function that makes the opponent."""
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
        has_replays: bool = False,
        at_start: bool = False,
    ) -> list[Callback]:
        """Callbacks that evaluate a run, end it and keep checkpoints.

        `has_replays`: the evaluator may keep a replay. `at_start`: as for `Evaluator`.
        """
        from entity_env.agents.ppo import CheckpointHistory, StopAtReward

        found: list[Callback] = []
        played, opponent = self._setting(game)
        # Games that might crash the process run in a worker.
        workers = min(num_workers, 1) if on_error == "restart" else 0
        make = partial(
            make_vec_env,
            played,
            num_workers=workers,
            step_timeout_s=step_timeout_s,
            on_error=on_error,
            autoreset="disabled",
        )
        # Without evaluations, self-play has no score to compare with random play.
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
                    replays=game if has_replays else None,
                )
            )
        if self.stop_at is not None:
            found.append(StopAtReward(self.stop_at))
        if self.keep_checkpoints:
            found.append(CheckpointHistory(self.keep_checkpoints))
        return found


def evaluation_lines(run: TrainingRun, step: int) -> list[str]:
    """Summary of a run's final evaluations, in lines; `step` is the run's last step."""
    folder = run.path / BEST
    try:
        kept = read_header(folder).training.get("step") if (folder / CONFIG).is_file() else None
    except EntityEnvError as error:
        return [f"no evaluation: {error}"]
    facts, last = _evaluated(run), last_evaluation(run, step)
    policy, best = facts.get(POLICY, GREEDY), MeanReward.from_json(facts.get(BEST))
    lines = [] if last is None else [f"evaluation: mean reward {last.words}, {policy}"]
    if kept is not None:
        place = shlex.quote(str(folder))
        lines.append(f"best: {place}, {_best_words(facts, last, best, kept, step)}")
    return lines + _policy_lines(facts, run.path)


def last_evaluation(run: TrainingRun, step: int) -> MeanReward | None:
    """The mean reward of the final network, if known; `step` is the run's last step."""
    last, evaluation = MeanReward.from_json(_evaluated(run).get(LAST)), run.final_evaluation
    if last is None and evaluation is not None and evaluation.step == step:
        return evaluation
    return last


def policy_scores(run: TrainingRun) -> PolicyScores:
    """Scores of the final network by both policies, as far as known."""
    return PolicyScores.from_json(_evaluated(run))


def _evaluated(run: TrainingRun) -> Mapping[str, object]:
    """Results of the final evaluations."""
    found = run.about.get("evaluated")
    return found if isinstance(found, dict) else {}


def _best_words(
    facts: Mapping[str, object],
    last: MeanReward | None,
    best: MeanReward | None,
    kept: object,
    step: int,
) -> str:
    """Which network was kept, and why."""
    if best is None:
        if kept == step:
            return "which is the last network"
        return f"of step {_number(kept)}" + ", not compared with the last one" * (last is None)
    games = facts.get(MATCH)
    share = games.get("win_rate") if isinstance(games, dict) else None
    match = ""
    if isinstance(games, dict) and isinstance(share, int | float):
        match = f"the last one won {share:.0%} of {games.get('num_episodes')} games of the two"
    if kept == step:
        match = match and f"; {match}"
        return f"which is the last network now: step {best.step:,} had {best.words}{match}"
    reason = match and f"; kept because {match}"
    return f"of step {best.step:,}: mean reward {best.words}{reason}"


def _policy_lines(facts: Mapping[str, object], out: Path) -> list[str]:
    """Scores of greedy and of sampled play, and the one by which the network plays."""
    scores = PolicyScores.from_json(facts)
    if scores.greedy is None or scores.sampled is None:
        return []
    words = f"greedy play earns {scores.greedy}, sampled play {scores.sampled}"
    if facts.get("greedy_is_worse"):
        is_last = facts.get(POLICY, GREEDY) == GREEDY
        if _share_cut(facts, LAST if is_last else OTHER_POLICY) >= _MANY_CUT:
            words = f"the greedy policy does not reach an end, as if in a loop: {words}"
    if scores.plays == GREEDY:
        words += "; the agent plays greedily unless --sample is given"
    else:
        unknown = " (too few episodes to tell which is better)" * (not scores.plays)
        words += f"{unknown}; the agent samples unless --greedy is given"
    replay = facts.get("replay")
    if isinstance(replay, str):
        words += f"; watch greedy play: entity-env replay {shlex.quote(str(out / replay))}"
    return [words]


def _share_cut(facts: Mapping[str, object], name: str) -> float:
    found = facts.get(name)
    share = found.get("cut") if isinstance(found, dict) else None
    return float(share) if isinstance(share, int | float) else 0.0


def _number(step: object) -> str:
    return f"{step:,}" if isinstance(step, int) else str(step)
