"""Measure programs and machines: speed, memory, kernels to select, and how well a language model predicts a text."""
