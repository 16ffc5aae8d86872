"""Random torch modules through the real exporter, against eager: see `python -m tests.random_modules --help`."""
