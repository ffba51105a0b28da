"""A game as a folder of static files, and what visitors of the page send back.

What a page shows and asks belongs to `page.live`, drawings to `views`, and commands to `cli`.
"""
