"""Random messages of programs, for the host."""
