"""Tests of clients that bring games of their own; the folder above tests the other clients."""
