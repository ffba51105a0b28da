"""Tests of `entity_env.agents.channels`."""
