"""Games or `Environment`s stepped one after another in one process.

Workers use the same classes. Processes and shared memory are in `workers`.
"""
