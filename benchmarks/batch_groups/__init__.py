"""The groups of figures of `benchmarks/batch.py`: each a function from a `Plan` to its figures."""
