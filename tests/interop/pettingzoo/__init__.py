"""Tests of `entity_env.interop.pettingzoo`."""
