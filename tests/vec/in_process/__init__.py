"""Tests of `entity_env.vec.in_process`."""
