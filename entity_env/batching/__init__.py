"""Observations of many environments, collected into arrays: rows in, one `Frame` out.

How environments are stepped is `vec`; what a single observation is, `core` and `authoring`.
"""
