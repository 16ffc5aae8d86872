"""Tensors and scalars without tensor operands: ranges, fills, symbolic integers."""
