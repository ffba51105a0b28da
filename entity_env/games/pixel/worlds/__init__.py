"""What shows screens and takes buttons: a grid of walls, a Game Boy in a process of its own.

The XO-CHIP machine has a folder of its own; goals and rewards are in `reward`.
"""
