"""Who plays Azul: scripted, searching, neural and human players, and matches between them.

What is legal and what it scores is `engine`.
"""
