"""Games in other languages: programs that exchange messages with this process.

`docs/reference/protocol.md` specifies the messages.
"""
