"""Tests of `entity_env.agents.ppo`."""
