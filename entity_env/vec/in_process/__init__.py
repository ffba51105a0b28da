"""Games or `Environment`s stepped one after another in one process.

Workers use the same classes; processes and shared memory are in `workers`.
"""
