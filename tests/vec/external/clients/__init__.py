"""Tests of clients with games of their own; the folder above tests the other clients."""
