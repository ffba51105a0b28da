"""Reward: distance of a screen from a goal, in torch and Warp, and captured goals in files.

Screens come from `worlds`; the environment around them is `games.pixel.env`.
"""
