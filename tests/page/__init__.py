"""Tests of `entity_env.page`."""
