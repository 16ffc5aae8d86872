"""Layers with a state for each sequence: convolutions and linear attention."""
