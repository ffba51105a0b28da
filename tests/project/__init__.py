"""Tests of the repository: its layout, README, examples and types."""
