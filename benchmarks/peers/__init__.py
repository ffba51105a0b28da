"""The contenders of the benchmarks.

Each runs in a separate process, in our environment or in one from `environment.py`, for peers that
need other versions. `contender.py` is the benchmark's side and `serve.py` the contender's side; the
other modules each make one or a few contenders.
"""
