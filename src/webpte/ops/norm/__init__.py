"""Normalisation by mean and variance."""
