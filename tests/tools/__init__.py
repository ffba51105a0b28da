"""Tests of what is in `tools`, without what builds for minutes."""
