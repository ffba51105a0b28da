"""Tests of `tools`, without builds that take minutes."""
