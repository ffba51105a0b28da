"""Tests of `entity_env.games.pixel.xo_chip`."""
