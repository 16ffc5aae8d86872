"""Functions that examine programs and return plain data; the command line prints it."""
