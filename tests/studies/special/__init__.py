"""NaN, infinities, signed zeros, denormals and the largest values through every op, against eager PyTorch."""
