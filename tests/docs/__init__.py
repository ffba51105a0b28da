"""The documentation: snippets run, pages are complete, and the generators work."""
