"""Observations of many environments, collected into arrays: rows in, one `Frame` out.

Stepping environments belongs in `vec`, single observations in `core` and `authoring`.
"""
