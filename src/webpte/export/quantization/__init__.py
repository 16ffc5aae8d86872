"""Quantize the weights of a module, close to the float module."""

from .quantize import QuantizationReport, apply_recipe, quantize_linears

__all__ = ["QuantizationReport", "apply_recipe", "quantize_linears"]
