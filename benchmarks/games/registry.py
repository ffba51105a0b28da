"""The twenty games: where they are, how long to train on them, how they are scored."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Final, Literal, TypeAlias

from entity_env import Game
from entity_env.agents import Agent
from entity_env.agents.scripted_agent import Bot

Score: TypeAlias = Literal["mean score", "win rate", "joint score"]


@dataclass(frozen=True)
class BenchmarkGame:
    """A game of the benchmark.

    Args:
        name: of the game, of its module, and of the variable in the module.
        steps: decisions of training, at most about a minute on one core.
        score: `"mean score"`: of one learner, in each seat equally often, against random play and
            against the scripted player. `"win rate"`: the share of those games in which its score
            is above the mean of the others; ties count half. `"joint score"`: the mean score with
            the learner in all seats.
        seats: number of agents.
        held_out: evaluated only once, after the defaults are decided. Do not train on it before.
        needs: packages that this repository's environment does not include.
    """

    name: str
    steps: int
    score: Score = "mean score"
    seats: int = 1
    held_out: bool = False
    needs: tuple[str, ...] = ()

    @property
    def module(self) -> str:
        """Name of the module."""
        return f"benchmarks.games.{'single' if self.seats == 1 else 'multi'}.{self.name}"

    @property
    def file(self) -> str:
        """The game's file, relative to the root of the repository."""
        return f"{self.module.replace('.', '/')}.py"

    @property
    def has_company(self) -> bool:
        """Whether the score depends on other players."""
        return self.seats > 1 and self.score != "joint score"

    @property
    def is_installed(self) -> bool:
        """Whether the packages that it needs are installed."""
        return all(find_spec(each) is not None for each in self.needs)

    def make(self) -> Game:
        """The game.

        Raises:
            ImportError: a package of `needs` is missing.
        """
        game = getattr(import_module(self.module), self.name)
        if not isinstance(game, Game):
            raise TypeError(f"{self.module}.{self.name} is not a Game")
        return game

    def scripted(self, seed: int) -> Agent:
        """A scripted player, made from a seed as other players are."""
        return Bot(import_module(self.module).Scripted)(seed)


_CLASSIC: Final = ("pettingzoo", "pygame")
_MPE: Final = ("pettingzoo", "mpe2")

BENCHMARK_GAMES: Final = {
    game.name: game
    for game in (
        BenchmarkGame("knapsack", 30_000),
        BenchmarkGame("courier", 80_000),
        BenchmarkGame("piles", 150_000, held_out=True),
        BenchmarkGame("key_door", 120_000),
        BenchmarkGame("inventory", 100_000),
        BenchmarkGame("lander", 300_000),
        BenchmarkGame("drones", 150_000, held_out=True),
        BenchmarkGame("dodge", 300_000),
        BenchmarkGame("fire_brigade", 15_000, held_out=True),
        BenchmarkGame("tower_defense", 10_000),
        BenchmarkGame("skirmish", 150_000, "win rate", seats=2),
        BenchmarkGame("bluff", 100_000, seats=4),
        BenchmarkGame("bids", 100_000, "win rate", seats=2, held_out=True),
        BenchmarkGame("throws", 150_000, "win rate", seats=2),
        BenchmarkGame("hunters", 200_000, seats=2),
        BenchmarkGame("connect_four", 150_000, "win rate", seats=2, needs=_CLASSIC),
        BenchmarkGame("leduc_holdem", 100_000, seats=2, needs=(*_CLASSIC, "rlcard")),
        BenchmarkGame("simple_spread", 200_000, "joint score", seats=3, needs=_MPE),
        BenchmarkGame("simple_tag", 180_000, seats=4, needs=_MPE),
        BenchmarkGame("simple_push", 100_000, seats=2, held_out=True, needs=_MPE),
    )
}
"""By name."""
