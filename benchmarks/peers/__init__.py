"""The contenders of `benchmarks/vec.py`.

Each runs in a process of its own, in our environment or in that of the peers, which need older
versions. `contender.py` is the end of the benchmark, `serve.py` the end of the contender, and every
other module makes one or a few of them.
"""
