"""Benchmarks: one question per script; see docs/benchmarks.md."""
