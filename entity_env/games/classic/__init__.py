"""Classic control, many copies at once: the physics of Gymnasium's environments as batches."""

from entity_env.games.classic.backends import Backend as Backend
from entity_env.games.classic.cart_pole import CartPole as CartPole
from entity_env.games.classic.mountain_car import MountainCar as MountainCar
from entity_env.games.classic.pendulum import Pendulum as Pendulum
