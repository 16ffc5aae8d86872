"""Many elements into one, and along a dim: sums, extremes, softmax."""
