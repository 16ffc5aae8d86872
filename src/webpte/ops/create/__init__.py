"""Tensors and scalars out of nothing: ranges, fills, symbolic integers."""
