"""`evaluate`: mean rewards of agents over many episodes, with confidence intervals."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from entity_env.agents.bots import load_for
from entity_env.agents.intervals import mean_of
from entity_env.agents.policy_agent import BatchPolicy
from entity_env.authoring.agent import Agent
from entity_env.authoring.game import Game
from entity_env.core.episode import ERROR_METRIC, MAX_STEPS
from entity_env.core.validation import checked_count, checked_seed
from entity_env.errors import UsageError, shown
from entity_env.vec.evaluation.episodes import (
    MAX_COPIES,
    Episodes,
    OnEpisode,
    PlayedEpisode,
    block_seed,
)
from entity_env.vec.options import OnError


@dataclass(frozen=True)
class AgentScores:
    """Statistics over the episodes of an agent.

    Args:
        mean_reward, std_reward: mean and sample standard deviation; 0 deviation for one episode.
        ci95: half of the mean's 95 % confidence interval, by Student's t; None for fewer than two
            episodes.
        mean_length: number of actions.
        episodes: number of episodes.
        truncated: number of those that were truncated, by the game or for one of the reasons below;
            they count with their reward until then.
        at_limit: number of those that did not end within the step limit.
        failed: number of those that ended because the game or an agent failed.
        rewards, seeds: of every episode, in order.
    """

    mean_reward: float
    std_reward: float
    ci95: float | None
    mean_length: float
    episodes: int
    truncated: int = 0
    at_limit: int = 0
    failed: int = 0
    rewards: Sequence[float] = ()
    seeds: Sequence[int] = ()

    @classmethod
    def of(cls, played: Sequence[PlayedEpisode], agent_id: int = 0) -> AgentScores:
        """Statistics over the episodes in which the agent took part; zeros without any."""
        found = [
            (each, episode)
            for each in played
            for episode in each.episodes
            if episode.agent_id == agent_id
        ]
        if not found:
            return cls(0.0, 0.0, None, 0.0, 0)
        rewards = [episode.reward for _, episode in found]
        mean = mean_of(rewards)
        return cls(
            mean_reward=mean.value,
            std_reward=statistics.stdev(rewards) if len(rewards) > 1 else 0.0,
            ci95=mean.half if mean.is_known else None,
            mean_length=statistics.fmean(episode.length for _, episode in found),
            episodes=len(rewards),
            truncated=sum(episode.truncated for _, episode in found),
            at_limit=sum(each.is_cut and each.failure is None for each, _ in found),
            failed=sum(
                each.failure is not None or ERROR_METRIC in episode.metrics
                for each, episode in found
            ),
            rewards=rewards,
            seeds=[episode.seed for _, episode in found],
        )


def evaluate(
    game: Game,
    agents: Agent | str | Sequence[Agent | str],
    *,
    episodes: int = 100,
    seed: int = 0,
    max_steps: int | None = MAX_STEPS,
    num_envs: int = MAX_COPIES,
    num_workers: int = 0,
    step_timeout_s: float | None = 30.0,
    on_error: OnError = "raise",
    failures: str | Path | None = None,
    on_episode: OnEpisode = lambda played: None,
) -> list[AgentScores]:
    """Plays episodes to measure agents, as `entity-env eval` does.

    With the same seed, all agents play the same episodes, which never occur in training. One agent
    that decides for batches (random or trained) plays many copies of the game at once.

    Args:
        agents: one per agent of the game: an `Agent`, or a name as for `eval --agent`.
        episodes, seed: number of episodes, and seed of the run.
        max_steps: actions of an agent after which an episode is truncated; None = no limit.
        num_envs, num_workers: maximum number of copies, and of processes; 0 = in this process.
        step_timeout_s: seconds of a step of the game, and of a decision of an agent that is asked
            one by one, after which it counts as hanging; None = no limit.
        on_error, failures: as for `VecEnv`; "restart" also holds for agents that fail.
        on_episode: called with every episode when it ends, in any order.

    Returns:
        The scores of every agent, in the order of the agents.

    Raises:
        UsageError, CheckpointError: an invalid argument, or an agent of another game.
        WorkerError, Exception: the game or an agent failed, as in `VecEnv` and `Game.run`.

    Example:
        >>> from entity_env.agents import RandomAgent
        >>> from entity_env.games import snake
        >>> from entity_env.vec import evaluate
        >>> [scores] = evaluate(snake, RandomAgent(seed=1), episodes=50)
        >>> scores.episodes, scores.at_limit
        (50, 0)
    """
    first, players = _players(game, agents, checked_seed(seed))
    planned = Episodes(
        game=game,
        players=players,
        count=checked_count("episodes", episodes),
        seed=seed,
        is_batched=is_batched(first),
        num_envs=checked_count("num_envs", num_envs),
        num_workers=checked_count("num_workers", num_workers, 0),
        max_steps=None if max_steps is None else checked_count("max_steps", max_steps),
        step_timeout_s=step_timeout_s,
        on_error=on_error,
        failures=None if failures is None else Path(failures),
    )
    played = planned.play(range(planned.num_blocks), on_episode)
    return [AgentScores.of(played, i) for i in range(game.num_agents)]


def _players(
    game: Game, agents: Agent | str | Sequence[Agent | str], seed: int
) -> tuple[list[Agent], Callable[[int], list[Agent]]]:
    """The agents of the first block, and a function that makes those of each block.

    Raises:
        UsageError: the wrong number of agents, or an unknown name.
    """
    given = [agents] if isinstance(agents, Agent | str) else list(agents)
    if len(given) != game.num_agents or not all(isinstance(each, Agent | str) for each in given):
        wanted = "1 agent" if game.num_agents == 1 else f"{game.num_agents} agents"
        raise UsageError(f"{game.name} needs {wanted} (objects or names): got {shown(agents)}")

    def players(block: int) -> list[Agent]:
        number = block_seed(seed, block)
        return [
            load_for(game, each, number + i) if isinstance(each, str) else each
            for i, each in enumerate(given)
        ]

    first = players(0)
    return first, lambda block: players(block) if block else first


def is_batched(agents: Sequence[Agent]) -> bool:
    """True if the agents can decide for many copies of their game at once."""
    return len(agents) == 1 and isinstance(agents[0], BatchPolicy)
