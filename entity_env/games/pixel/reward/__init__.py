"""The reward: how far a screen is from a goal, in numpy, torch and Warp, and goals in files.

Which screens there are is `worlds`; episodes around them, `games.pixel.env`.
"""
