"""The contenders of `benchmarks/vec.py`.

Each runs in a separate process, in our environment or in that of the peers, which need older
versions. `contender.py` is the benchmark's side and `serve.py` the contender's side; the other
modules each make one or a few contenders.
"""
