"""The documentation: its snippets run, its pages are complete, and what makes them works."""
