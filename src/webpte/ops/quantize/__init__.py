"""Floats into codes and back, and the parameters for it."""
