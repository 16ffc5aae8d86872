"""Products of float matrices, and what is applied to their results before they are stored."""
