"""Tests of `entity_env.vec.external`."""
