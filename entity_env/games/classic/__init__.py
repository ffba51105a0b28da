"""Classic control as batches: the physics of Gymnasium's CartPole, MountainCar and Pendulum.

What all batch environments share is in `vec.batch_env`; a game is one module here.
"""

from entity_env.games.classic.batch_env import Backend as Backend
from entity_env.games.classic.cart_pole import CartPole as CartPole
from entity_env.games.classic.mountain_car import MountainCar as MountainCar
from entity_env.games.classic.pendulum import Pendulum as Pendulum
