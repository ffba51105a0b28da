"""Tests of `entity_env.agents.rogue_net.enn_trainer`."""
