"""Elements chosen by tensors of indices."""
