"""Code of files that the user named: how Python finds it, and what of it may run.

`finder.py` compiles it from its source, and `check.py` compares it with what was named. Which
module a name means is decided in `load_module.py`.
"""
