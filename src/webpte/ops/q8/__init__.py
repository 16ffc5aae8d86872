"""Layers of 8-bit codes."""
