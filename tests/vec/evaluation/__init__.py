"""Tests of `entity_env.vec.batch_env`."""
