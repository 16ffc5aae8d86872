"""Build programs from checkpoints without torch."""
