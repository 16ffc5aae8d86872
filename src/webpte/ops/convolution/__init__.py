"""Convolutions in one and two dims, of floats."""
