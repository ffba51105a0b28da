"""Tests of `entity_env.games.pixel`."""
