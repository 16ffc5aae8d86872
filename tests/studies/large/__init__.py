"""Models of a billion weights, which no check can afford: `python -m tests.studies large --help`."""
