"""Tests of self-play."""
