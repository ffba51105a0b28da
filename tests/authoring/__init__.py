"""Tests of `entity_env.authoring`."""
