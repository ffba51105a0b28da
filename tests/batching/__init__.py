"""Tests of `entity_env.batching`."""
