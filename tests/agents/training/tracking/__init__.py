"""Tests of `entity_env.agents.training.tracking`."""
