"""Benchmarks: one question a script; see docs/benchmarks.md."""
