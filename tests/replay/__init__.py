"""Tests of `entity_env.core`."""
