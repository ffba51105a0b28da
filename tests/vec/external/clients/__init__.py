"""Tests of clients with games of their own; those for C, JavaScript and Lua are in the folder above."""
