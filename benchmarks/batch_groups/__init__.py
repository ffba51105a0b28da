"""The groups of figures of `benchmarks/batch.py`: each a function from a `Setup` to its figures."""
