"""The attack suite: random faults within a time budget; `make attack` gives it ten minutes.

`make test` runs each of these tests for 0.4 s per unit of its weight.
"""
