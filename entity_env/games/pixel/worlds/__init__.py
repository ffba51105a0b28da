"""Worlds: machines with screens and buttons, their checks, and settings that run any ROM.

The XO-CHIP machine is in `xo_chip`; goals and rewards are in `reward`.
"""
