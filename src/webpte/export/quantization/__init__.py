"""Quantise the weights of a module, close to the float module."""

from .quantise import QuantizationReport, quantise, quantise_linears

__all__ = ["QuantizationReport", "quantise", "quantise_linears"]
