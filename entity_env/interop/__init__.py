"""Neighbours: one file for each library that entity_env meets."""
