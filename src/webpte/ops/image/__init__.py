"""Pooling, resampling and other ops on images."""
