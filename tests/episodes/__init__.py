"""Tests of `entity_env.episodes`."""
