"""Tests of `entity_env.interop.gymnasium`."""
