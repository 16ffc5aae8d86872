"""Operators: a folder per family, found by walking it; see :mod:`webpte.lowering.registry`."""
