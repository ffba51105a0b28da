"""Ray: learners on many machines, sweeps and evaluation on a cluster.

Nothing here is imported unless it is asked for, and nothing below imports it: training only joins
the process group of torch that it finds.
"""
