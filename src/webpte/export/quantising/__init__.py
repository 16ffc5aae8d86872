"""Quantise the weights of a module, close to the float module."""

from .quantise import Report, quantise, quantise_linears

__all__ = ["Report", "quantise", "quantise_linears"]
