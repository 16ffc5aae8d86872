"""The version, apart from everything else so that anyone may import it."""

__version__ = "0.2.0"
