"""Long runs that CI has no time for, each a command: `python -m tests.studies soak.threads`, `.pair`, `.forks`,
`.decode`."""
