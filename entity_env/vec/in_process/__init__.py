"""Games or `Environment`s stepped one after another in one process, which may be a worker.

Processes and shared memory are in `workers`.
"""
