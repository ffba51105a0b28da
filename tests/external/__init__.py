"""Tests of `entity_env.external`."""
