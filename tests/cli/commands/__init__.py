"""Tests of `entity_env.cli.commands`."""
