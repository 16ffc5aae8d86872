"""Pooling, resampling and what else works on pictures."""
