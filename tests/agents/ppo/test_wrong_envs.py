"""Objects that are not vector environments with automatic resets are rejected, with a fix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import pytest

from entity_env import EpisodeEnv, SchemaError, UsageError
from entity_env.agents.ppo import PPOConfig, train
from entity_env.games import snake
from entity_env.games.classic import CartPole
from entity_env.vec import Autoreset, BatchVecEnv, VecEnv
from tests.helpers.tiny_games import count

MAKERS = (
    r" create one with VecEnv\(game, 64\) .*; for a batch environment, BatchVecEnv; "
    r"for Gymnasium, GymnasiumVecEnv\(gymnasium.*; for PettingZoo, .*from_pettingzoo"
)
WRONG: list[tuple[Callable[[], Any], str]] = [
    (lambda: gymnasium.make("CartPole-v1"), "got <TimeLimit"),
    (lambda: snake, r"got Game\(snake\);"),
    (lambda: CartPole(2), "got <.*CartPole"),
    (lambda: VecEnv, "got <class 'entity_env.vec.vec_env.VecEnv'>;"),
    (lambda: EpisodeEnv.of(snake), "got <entity_env.episodes"),
    (lambda: None, "got None;"),
]


@pytest.mark.parametrize(("make", "told"), WRONG)
def test_what_is_no_vector_environment(make: Callable[[], Any], told: str) -> None:
    wrong = make()
    with pytest.raises(SchemaError, match=rf"train needs a VecEnv: .*{told}.*{MAKERS}"):
        train(wrong, PPOConfig(total_steps=64))
    with pytest.raises(SchemaError, match=rf"PPOConfig.for_env needs a VecEnv: .*{told}"):
        PPOConfig.for_env(wrong)


@pytest.mark.parametrize("autoreset", ["disabled", "next_step"])
def test_another_autoreset(autoreset: Autoreset) -> None:
    for vec in (
        VecEnv(count, 2, autoreset=autoreset),
        BatchVecEnv(CartPole, 2, autoreset=autoreset),
    ):
        with (
            vec,
            pytest.raises(
                UsageError, match=rf'a VecEnv with autoreset="same_step": this .*{autoreset}'
            ),
        ):
            train(vec, PPOConfig(total_steps=64))


@pytest.mark.parametrize("make", [lambda: gymnasium.make("CartPole-v1"), lambda: CartPole(2)])
def test_a_source_of_another_kind(make: Callable[[], Any]) -> None:
    with pytest.raises(SchemaError, match=f"a VecEnv needs a Game.*{MAKERS}"):
        VecEnv(make(), 2)
    with pytest.raises(SchemaError, match=f"a VecEnv needs a Game.* returned a .*{MAKERS}"):
        VecEnv(make, 2)
    with pytest.raises(SchemaError, match=f"an EpisodeEnv needs a Game.*{MAKERS}"):
        EpisodeEnv.of(make())
