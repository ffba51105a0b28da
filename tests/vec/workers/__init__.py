"""Tests of `entity_env.vec.workers`."""
