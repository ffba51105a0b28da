"""The groups of figures of `benchmarks/pixel.py`: each a function from a `Setup` to its figures."""
