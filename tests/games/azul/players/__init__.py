"""Tests of `entity_env.games.azul.players`."""
