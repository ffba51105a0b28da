"""Classic control as batches: the physics of Gymnasium's CartPole, MountainCar and Pendulum.

One module per game. Code shared by all batch environments is in `vec.batch_env`.
"""

from entity_env.games.classic.batch_env import Backend as Backend
from entity_env.games.classic.cart_pole import CartPole as CartPole
from entity_env.games.classic.mountain_car import MountainCar as MountainCar
from entity_env.games.classic.pendulum import Pendulum as Pendulum
