"""Tests of `entity_env.cluster`."""
