"""Many processes: jobs on this machine; learners, sweeps and evaluation on a Ray cluster.

Imported only on request, and never by lower layers: training only joins an existing torch process
group.
"""
