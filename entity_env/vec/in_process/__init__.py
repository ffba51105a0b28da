"""Environments stepped in this process: many games, or many `Environment`s.

A worker steps its share with the same classes; processes and shared memory are in `workers`.
"""
