"""Tests of `entity_env.agents.rogue_net`."""
