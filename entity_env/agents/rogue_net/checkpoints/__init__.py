"""File formats of this package: checkpoint folders, `.agent` files, safetensors.

`enn_trainer` has enn-trainer's formats; `reader` reads a network from any format.
"""
