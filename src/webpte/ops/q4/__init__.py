"""Linear layers whose weights are 4-bit codes with a scale per group."""
