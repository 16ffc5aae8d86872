"""Random torch modules through the real exporter, against eager: see `python -m tests.studies random_modules
--help`."""
