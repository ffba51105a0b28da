"""Many processes: jobs on this machine; learners, sweeps and evaluation on a Ray cluster.

This package is imported only on request, and no lower layer imports it: training only joins an
existing torch process group.
"""
