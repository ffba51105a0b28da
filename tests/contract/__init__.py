"""Suites over every game and every executor, by parametrization."""
