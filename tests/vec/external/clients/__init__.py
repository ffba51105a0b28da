"""Tests of clients with their own games; for C, JavaScript and Lua, see the parent folder."""
