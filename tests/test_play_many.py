"""Episodes played at once are the same, however many processes play them."""

from __future__ import annotations

import pytest

from entity_env import Episode
from entity_env.agents import RandomAgent
from entity_env.cli.play_many import play_many
from entity_env.games import GAMES, snake


def played(name: str, num_workers: int, episodes: int = 10) -> list[Episode]:
    told: list[Episode] = []
    agent = RandomAgent(seed=1)
    done = play_many(
        GAMES[name], agent, episodes, seed=2, num_workers=num_workers, on_episode=told.append
    )
    assert told == done
    return done


@pytest.mark.parametrize("name", [name for name, game in GAMES.items() if game.num_agents == 1])
def test_workers_change_nothing(name: str) -> None:
    alone = played(name, 0)
    assert len(alone) == 10
    assert played(name, 2) == alone


@pytest.mark.parametrize("episodes", [1, 64, 70, 129])
def test_every_copy_plays_its_share(episodes: int) -> None:
    done = played("cherry_pick", 0, episodes)
    shares = [sum(e.env_id == i for e in done) for i in range(min(episodes, 64))]
    assert sum(shares) == episodes
    assert max(shares) - min(shares) <= 1
    assert {e.number for e in done if e.env_id == 0} == set(range(shares[0]))


def test_an_agent_meets_the_starts_that_others_meet() -> None:
    def seeds(agent_seed: int) -> set[tuple[int, int, int]]:
        done = play_many(
            snake,
            RandomAgent(agent_seed),
            20,
            seed=5,
            num_workers=0,
            on_episode=lambda episode: None,
        )
        return {(e.env_id, e.number, e.seed) for e in done}

    assert seeds(1) == seeds(2)
