"""File formats of enn-trainer, read and written: RON, msgpack tensors, tar archives.

Only formats belong here: `torch_net` and `numpy_net` compute the networks.
"""
