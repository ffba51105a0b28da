"""Code shared by tests of several folders; contains no tests."""
