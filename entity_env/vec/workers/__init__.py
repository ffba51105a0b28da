"""Environments stepped in other processes: process lifecycle, shared memory, wake-up.

The environments are in `in_process` or `batch_env`; nothing here depends on games.
"""
