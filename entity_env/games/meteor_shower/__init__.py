"""Meteors: a game written as a loop, and the same rules in numpy for many copies at once."""

from entity_env.games.meteor_shower.meteors import Meteors as Meteors, meteors as meteors
