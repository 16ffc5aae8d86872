"""Quantising a module's weights, so that it stays close to what it was."""

from .quantise import quantise, quantise_linears
from .report import Report

__all__ = ["Report", "quantise", "quantise_linears"]
