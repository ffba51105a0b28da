"""A game as a folder of static files, and what visitors of the page send back.

`page.live` shows a game and asks its visitors; drawings belong to `views`, commands to `cli`.
"""
