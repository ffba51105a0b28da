"""Many processes: jobs on this machine; learners, sweeps and evaluation on a Ray cluster.

Nothing here is imported unless it is asked for, and nothing below imports it: training only joins
the process group of torch that it finds.
"""
