"""Tests of `entity_env.check`."""
