"""Parametrized suites over every game and every executor."""
