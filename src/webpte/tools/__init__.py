"""Functions that look at programs and return plain data; the command line prints it."""
