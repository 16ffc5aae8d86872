"""Products of float matrices, and the programs that change their results before they are stored."""
