"""enn-trainer's file formats, read and written: RON, msgpack tensors, tar archives.

Only formats belong here: the network that they describe is built by `torch_net` and `numpy_net`.
"""
