"""Long runs that CI has no time for, each a command: `python -m tests.soak.threads`, `.pair`, `.forks`, `.decode`."""
