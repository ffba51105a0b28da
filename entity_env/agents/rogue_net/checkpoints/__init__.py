"""File formats of this package: checkpoint folders, `.agent` files, safetensors.

Those of enn-trainer are in `enn_trainer`; `reader` reads a network from any of them.
"""
