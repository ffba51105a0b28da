"""Our own file formats: checkpoint folders, `.agent` files, safetensors.

enn-trainer's formats are in `enn_trainer`.
"""
