"""Tests of clients with their own games; tests for C, JavaScript and Lua are in the parent folder."""
