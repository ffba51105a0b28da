"""Tests of `entity_env.cli.browser`."""
