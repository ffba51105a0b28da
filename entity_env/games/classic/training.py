"""Training settings of the classic games: they train as batches."""

from __future__ import annotations

from typing import Final

from entity_env.games.classic.cart_pole import CartPole
from entity_env.games.classic.mountain_car import MountainCar
from entity_env.games.classic.pendulum import Pendulum
from entity_env.vec import GameTraining

cartpole: Final = GameTraining({"preset": "control", "total_steps": 100_000}, CartPole)
mountain_car: Final = GameTraining(batch=MountainCar)
# A torque takes effect within ten steps, so a small gamma is enough.
pendulum: Final = GameTraining(
    {"preset": "control", "total_steps": 150_000, "gamma": 0.9}, Pendulum
)
