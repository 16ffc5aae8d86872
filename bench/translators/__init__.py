"""What Metal and Direct3D 12 make of webpte's kernels, without a GPU and without these systems."""
