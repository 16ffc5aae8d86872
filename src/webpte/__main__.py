"""`python -m webpte` is the `webpte` command."""

from .cli import entry

entry()
