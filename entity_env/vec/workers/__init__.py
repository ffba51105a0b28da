"""Environments stepped in other processes: starting and ending them, shared memory, waking up.

What is stepped there is `in_process` or `batch_env`; nothing here knows games.
"""
